//! The daemon.

fn main() -> std::process::ExitCode {
    ptcd::app::main()
}
