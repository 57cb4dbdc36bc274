//! `ptcctl`, the person's tool.

fn main() -> std::process::ExitCode {
    ptcd::ctl::main()
}
