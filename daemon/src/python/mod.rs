//! The child's runtime: real Python files, embedded, and joined into the one text a child is started with.
//!
//! `loader.py` makes the files of `ptc/` importable from that text; nothing of the runtime is ever on disk. This module knows the order
//! of the files and nothing of what they do. What the child and the daemon say to each other belongs to `runner`.

/// One file of the runtime, as a call of the loader. The files hold no `'''` and no line that ends in a backslash before it.
macro_rules! part {
    ($name:literal) => {
        concat!("\npart(\"", $name, "\", r'''", include_str!(concat!("ptc/", $name, ".py")), "''')\n")
    };
}

/// The text for `python -I -S -B -c`. It waits for one program on descriptor 3, runs it, reports and ends the process.
pub fn bootstrap() -> &'static str {
    BOOTSTRAP
}

const BOOTSTRAP: &str = concat!(
    include_str!("loader.py"),
    part!("channel"),
    part!("jsontext"),
    part!("convert"),
    part!("forgotten"),
    part!("tools"),
    part!("names"),
    part!("loops"),
    part!("output"),
    part!("program"),
    part!("builtin"),
    part!("errors"),
    part!("hints"),
    part!("syntax_hints"),
    part!("value_hints"),
    part!("evidence"),
    part!("main"),
    "\nfrom ptc.main import main\n\nmain()\n",
);

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;

    /// Linux gives one argument at most 32 pages.
    const MAX_ARGUMENT_BYTES: usize = 128 * 1024;

    #[test]
    fn bootstrap_fits_into_one_argument() {
        assert!(bootstrap().len() < MAX_ARGUMENT_BYTES, "{} bytes", bootstrap().len());
    }

    /// Runs one file of the Python suite on exactly the embedded text.
    fn python_suite(module: &str) {
        let home = tempfile::tempdir().unwrap();
        let text = home.path().join("bootstrap.py");
        std::fs::write(&text, bootstrap()).unwrap();
        let output = Command::new("python3")
            .args(["-B", "-m", "unittest", &format!("tests.{module}")])
            .current_dir(python_dir())
            .env("PTC_BOOTSTRAP", &text)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn python_dir() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python")
    }

    macro_rules! python_suites {
        ($($name:ident)*) => {
            $(#[test] fn $name() { python_suite(stringify!($name)); })*

            #[test]
            fn every_python_test_file_is_run() {
                let mut found: Vec<String> = std::fs::read_dir(python_dir().join("tests"))
                    .unwrap()
                    .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".py").map(str::to_owned))
                    .filter(|name| name.starts_with("test_"))
                    .collect();
                found.sort();
                assert_eq!(found, [$(stringify!($name)),*]);
            }
        };
    }

    python_suites! {
        test_bootstrap
        test_channel
        test_convert
        test_errors
        test_jsontext
        test_loops
        test_names
        test_program
        test_tools
    }
}
