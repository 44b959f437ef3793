//! `docs/threat-model.md` and `docs/reliability.md` name tests; each must exist.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with tests.
const ROOTS: [&str; 5] = ["core", "node", "controller", "uplink", "dwell"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Appends the text of every Rust file below `folder`.
fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("node_modules") {
                read_sources(&path, text);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Returns the test names in a document: words of at least three parts joined by underscores, in
/// backquotes.
fn names(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs").join(document)).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let is_test = |word: &&str| {
        word.matches('_').count() >= 2
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    quoted.filter(is_test).map(str::to_owned).collect()
}

#[test]
fn every_documented_test_exists() {
    let mut sources = String::new();
    for folder in ROOTS {
        read_sources(&root().join(folder), &mut sources);
    }
    for document in ["threat-model.md", "reliability.md"] {
        let names = names(document);
        assert!(names.len() >= 10, "{document} names {} tests", names.len());
        let missing: Vec<_> =
            names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "{document}: no test is called {missing:?}");
    }
}
