//! The examples of the README, `docs/guide.md`, `docs/devices.md` and `docs/web.md` work as typed: every block
//! marked `sh example`, in order, through `sh`.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::{env, fs};

#[test]
fn readme_examples_work_as_typed() {
    check_examples("readme_examples_work_as_typed", "README.md", 7);
}

#[test]
fn guide_examples_work_as_typed() {
    check_examples("guide_examples_work_as_typed", "docs/guide.md", 5);
    check_examples("guide_examples_work_as_typed", "docs/devices.md", 2);
}

#[test]
fn web_examples_work_as_typed() {
    check_examples("web_examples_work_as_typed", "docs/web.md", 3);
}

/// Types the examples of a document, which has at least `minimum`, in a directory of their own.
fn check_examples(test: &str, document: &str, minimum: usize) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let examples = examples(&fs::read_to_string(root.join(document)).unwrap());
    assert!(examples.len() >= minimum, "{document} has {} examples, not {minimum}", examples.len());
    if !is_root() {
        println!("SKIP {test}: an example creates a link, which needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for example in &examples {
        let (status, printed) = typed(example, directory.path());
        if !status.success() {
            remove_labs(example);
            panic!("{status}:\n{example}\n--- output:\n{printed}");
        }
    }
}

#[test]
fn readme_python_examples_exclude_late_replies() {
    let guide = include_str!("../../docs/guide.md");
    let reading = |line: &&str| line.contains(".parquet") && line.contains("rtt_ns");
    let lines: Vec<&str> = guide.lines().filter(reading).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        assert!(line.contains("state"), "late replies have an rtt_ns too: {line}");
    }
}

/// Returns the contents of all fenced blocks marked `sh example`.
fn examples(document: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut lines = document.lines();
    while lines.by_ref().any(|line| line == "```sh example") {
        let block = lines.by_ref().take_while(|line| *line != "```");
        examples.push(block.collect::<Vec<_>>().join("\n"));
    }
    examples
}

/// Runs an example with a time limit, stops at the first failure and kills its background
/// processes. Returns its status and output.
fn typed(example: &str, directory: &Path) -> (ExitStatus, String) {
    let binaries = Path::new(env!("CARGO_BIN_EXE_dwell")).parent().unwrap();
    let path = env::join_paths(
        std::iter::once(binaries.to_owned())
            .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    );
    // A file instead of a pipe, which background processes could keep open.
    let log = directory.join("log");
    let file = File::create(&log).unwrap();
    let mut shell = Command::new("timeout")
        .args(["--kill-after=5", "240", "sh", "-ec", example])
        .current_dir(directory)
        .env("PATH", path.unwrap())
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let status = shell.wait().unwrap();
    // `timeout` created a process group; processes left in it belong to the example.
    let group = format!("-{}", shell.id());
    drop(Command::new("kill").args(["-KILL", "--", &group]).output());
    (status, fs::read_to_string(log).unwrap())
}

/// Removes the labs of an example that failed.
fn remove_labs(example: &str) {
    let names = example.split("--name ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    for name in names {
        drop(Command::new(env!("CARGO_BIN_EXE_dwell")).args(["lab", "down", name]).output());
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}
