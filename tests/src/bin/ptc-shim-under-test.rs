//! `ptc-shim` for the end-to-end tests.

fn main() -> std::process::ExitCode {
    ptc_shim::main()
}
