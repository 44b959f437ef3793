//! The committed objects in `node/bpf` match their sources.

use std::path::Path;
use std::process::Command;

#[test]
fn committed_objects_match_their_sources() {
    const TEST: &str = "committed_objects_match_their_sources";
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    if Command::new("clang-14").arg("--version").output().is_err() {
        println!("SKIP {TEST}: clang-14 is not installed (make setup)");
        return;
    }
    // In another directory, because objects must not contain paths.
    let rebuilt = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&programs).unwrap().flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "o") {
            std::fs::copy(entry.path(), rebuilt.path().join(entry.file_name())).unwrap();
        }
    }
    let build = Command::new(rebuilt.path().join("build")).arg(rebuilt.path()).output().unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let objects = |directory: &Path| {
        let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let mut objects: Vec<_> = files
            .filter(|path| path.extension().is_some_and(|extension| extension == "o"))
            .map(|path| (path.file_name().unwrap().to_owned(), std::fs::read(path).unwrap()))
            .collect();
        objects.sort();
        objects
    };
    let (committed, rebuilt) = (objects(&programs), objects(rebuilt.path()));
    let names = |objects: &[(std::ffi::OsString, Vec<u8>)]| {
        objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&committed), names(&rebuilt));
    for ((name, committed), (_, rebuilt)) in committed.iter().zip(&rebuilt) {
        assert!(committed == rebuilt, "{} is out of date: make bpf", name.display());
    }
}
