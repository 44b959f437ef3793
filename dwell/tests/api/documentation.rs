//! The examples of docs/api.md work as typed, with the address of the test's server.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::programs::venv;
use crate::server::{DWELL, Sandbox, Server, is_root};

#[test]
fn examples_of_the_api_work_as_typed() {
    const TEST: &str = "examples_of_the_api_work_as_typed";
    if !is_root(TEST) {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = fs::read_to_string(root.join("docs/api.md")).unwrap();
    let python = venv().map(|venv| venv.join("bin/python"));
    if python.is_none() {
        println!("SKIP {TEST}: setup/api-venv cannot install pandas");
    }
    let sandbox = Sandbox::new();
    let server = Server::start(&sandbox.data());
    let examples = examples(&document);
    assert!(examples.len() >= 7, "{}", examples.len());
    let binaries = Path::new(DWELL).parent().unwrap().to_owned();
    let paths = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let path = env::join_paths(std::iter::once(binaries).chain(paths)).unwrap();
    for (language, example) in &examples {
        let text = example.replace("127.0.0.1:8080", &server.address.to_string());
        let (program, option) = match (language.as_str(), &python) {
            ("sh", _) => (Path::new("sh"), "-ec"),
            (_, Some(python)) => (python.as_path(), "-c"),
            (_, None) => continue,
        };
        let log = sandbox.path("log");
        let output = File::create(&log).unwrap();
        let status = Command::new("timeout")
            .args(["--kill-after=5", "120"])
            .arg(program)
            .args([option, &text])
            .current_dir(sandbox.path("."))
            .env("PATH", &path)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .status()
            .unwrap();
        let printed = fs::read_to_string(&log).unwrap();
        assert!(status.success(), "{status}:\n{text}\n--- output:\n{printed}");
    }
}

/// Returns the contents of all fenced blocks marked as an example, with their language.
fn examples(document: &str) -> Vec<(String, String)> {
    let mut examples = Vec::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```").and_then(|it| it.strip_suffix(" example"))
        else {
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        examples.push((language.to_owned(), block.join("\n")));
    }
    examples
}
