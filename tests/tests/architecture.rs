//! Keeps the arrows one-way: each module of the daemon names only the modules below it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A module of the daemon and the modules that it may name. `lib` wires the names together and is not listed.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "app",
        &[
            "config",
            "demo",
            "front",
            "gateway",
            "guardian",
            "logging",
            "python",
            "reload",
            "runner",
            "sandbox",
            "stubs",
            "supervisor",
        ],
    ),
    ("reload", &["supervisor", "config"]),
    ("front", &["config", "gateway", "logging", "reload", "runner", "supervisor"]),
    ("runner", &["config", "gateway", "guardian", "python", "sandbox"]),
    ("stubs", &["config", "gateway", "stub_folder"]),
    ("gateway", &["supervisor", "config"]),
    ("supervisor", &["config", "guardian", "mark"]),
    ("sandbox", &["config", "guardian", "python", "removal"]),
    ("ctl", &["config", "stub_folder"]),
    ("stub_folder", &[]),
    ("config", &[]),
    ("python", &[]),
    ("guardian", &["mark", "removal"]),
    ("mark", &[]),
    ("removal", &[]),
    ("logging", &[]),
    ("demo", &[]),
];

#[test]
fn modules_name_only_what_lies_below_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/src");
    let mut wrong = BTreeSet::new();
    for file in rust_files(&src) {
        let relative = file.strip_prefix(&src).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if ["lib", "bin"].contains(&module) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == module) else {
            wrong.insert(format!("`{module}` is new: give it a line in ALLOWED"));
            continue;
        };
        for used in named_modules(&fs::read_to_string(&file).unwrap()) {
            if used != module && !allowed.contains(&used.as_str()) {
                wrong.insert(format!("{}: `{module}` must not use `crate::{used}`", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// No arrow may come back: whatever a module may name must not be allowed to name it.
#[test]
fn the_arrows_have_no_circle() {
    let below = |module: &str| ALLOWED.iter().find(|(name, _)| *name == module).map_or(&[][..], |(_, below)| below);
    for (start, _) in ALLOWED {
        let mut reached: BTreeSet<&str> = below(start).iter().copied().collect();
        while let Some(more) = reached.iter().flat_map(|module| below(module)).find(|module| !reached.contains(*module))
        {
            reached.insert(more);
        }
        assert!(!reached.contains(start), "`{start}` lies below itself");
    }
}

/// The module names behind `crate::`, also in `crate::{a, b::c}`.
fn named_modules(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for rest in source.split("crate::").skip(1) {
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 1;
            let mut word = String::new();
            let mut heads = true;
            for character in group.chars() {
                match character {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                if depth == 1 && (character.is_alphanumeric() || character == '_') && heads {
                    word.push(character);
                } else {
                    if !word.is_empty() {
                        found.insert(std::mem::take(&mut word));
                        heads = false;
                    }
                    if depth == 1 && character == ',' {
                        heads = true;
                    }
                }
                if depth == 0 {
                    break;
                }
            }
        } else {
            found.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found.remove("");
    found
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a source folder") {
        let path = entry.expect("a source folder").path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn grouped_imports_are_seen() {
    let source = "use crate::{\n    config::Settings, gateway::{Gateway, names::X},\n    runner,\n};\nfn f() { crate::front::serve() }";
    assert_eq!(named_modules(source), ["config", "front", "gateway", "runner"].map(String::from).into());
}
