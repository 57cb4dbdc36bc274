//! See the library.

fn main() -> std::process::ExitCode {
    ptc_shim::main()
}
