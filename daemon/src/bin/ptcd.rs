use std::process::ExitCode;

fn main() -> ExitCode {
    // The launcher must come first: it relies on being the only thread.
    if std::env::args_os().nth(1).is_some_and(|word| word == ptcd::sandbox::SUBCOMMAND) {
        return ptcd::sandbox::launcher_main();
    }
    ExitCode::SUCCESS
}
