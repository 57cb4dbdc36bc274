//! `ptcd` for the end-to-end tests.

fn main() -> std::process::ExitCode {
    ptcd::app::main()
}
