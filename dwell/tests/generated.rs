//! Files committed under `docs/` match the current command definition.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

#[test]
fn committed_man_pages_agree_with_the_command_definition() {
    assert_committed("man", "docs/man");
}

#[test]
fn committed_completions_agree_with_the_command_definition() {
    assert_committed("completions", "docs/completions");
}

fn assert_committed(what: &str, committed: &str) {
    let fresh = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_dwell"))
        .args(["generate", what])
        .arg(fresh.path())
        .status()
        .unwrap();
    assert!(status.success(), "dwell generate {what}: {status}");

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let committed = files(&root.join(committed)).unwrap();
    let fresh = files(fresh.path()).unwrap();
    let stale: Vec<&String> = fresh
        .keys()
        .chain(committed.keys())
        .filter(|name| fresh.get(*name) != committed.get(*name))
        .collect();
    assert!(stale.is_empty(), "out of date: {stale:?}; run `make {what}` and commit the result");
}

/// Returns name and content of every file in `directory`.
fn files(directory: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
        })
        .collect()
}
