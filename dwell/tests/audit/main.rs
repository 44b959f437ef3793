//! `dwell audit` as a user types it: exit codes, errors, JSON, runs, and the examples of
//! `docs/audit.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn dwell(&self, arguments: &[&str]) -> Output {
        Command::new(DWELL)
            .args(arguments)
            .current_dir(self.0.path())
            .env("DWELL_DATA", self.0.path().join("data"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn audit(&self, arguments: &[&str]) -> Output {
        self.dwell(&[&["audit"], arguments].concat())
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn schema_errors(object: &Value) -> Vec<String> {
    let path = repository("docs/schema/dwell.audit-1.schema.json");
    let schema: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    schema.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn json_of_every_document_matches_the_schema() {
    let sandbox = Sandbox::new();
    for (document, code) in
        [("chung-2021", 3), ("roedlach-vock", 3), ("mok-2015", 0), ("ramstetter", 0)]
    {
        let path = repository("controller/documents/data").join(document).join("TABLE.toml");
        let output = sandbox.audit(&[path.to_str().unwrap(), "--json"]);
        assert_eq!(output.status.code(), Some(code), "{document}: {output:?}");
        let report = object(&output);
        assert_eq!(schema_errors(&report), Vec::<String>::new(), "{report:#}");
        assert_eq!(report["schema"], "dwell.audit/1");
        for field in report.as_object().unwrap().keys() {
            let mut broken = report.clone();
            broken.as_object_mut().unwrap().remove(field);
            assert_ne!(schema_errors(&broken), Vec::<String>::new(), "without {field}");
        }
        let mut broken = report.clone();
        broken["findings"][0]["severity"] = json!("grave");
        assert_ne!(schema_errors(&broken), Vec::<String>::new());
    }
}

#[test]
fn exit_code_follows_the_severity_of_findings() {
    let sandbox = Sandbox::new();
    let clean =
        sandbox.write("clean.csv", "sent,received,latency_ms\n10:00:00.100,10:00:00.150,50\n");
    let output = sandbox.audit(&[&clean]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout(&output).contains("0 serious findings"), "{output:?}");
    let wrong =
        sandbox.write("wrong.csv", "sent,received,latency_ms\n10:00:00.100,10:00:00.150,90\n");
    let output = sandbox.audit(&[&wrong]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(
        stdout(&output).contains("row 1: received minus sent is 50 ms, printed 90"),
        "{output:?}"
    );
}

#[test]
fn wrong_inputs_are_usage_errors_with_the_reason() {
    let sandbox = Sandbox::new();
    let csv = sandbox.write("a.csv", "x,y\n1,2\n");
    let numbers = sandbox.write("numbers.csv", "1,2\n3,4\n");
    let binary = sandbox.write("binary.csv", "\0\0\0\0");
    let empty = sandbox.write("empty.csv", "");
    let toml = sandbox.write("TABLE.toml", "rows = '''\na_ms\n1\n'''\nprinted = { men = 1 }\n");
    let no_file = sandbox.write("other.toml", "file = \"nowhere.csv\"\n");
    for (arguments, words) in [
        (&["nowhere.csv"][..], "nowhere.csv"),
        (&[numbers.as_str()], "add a header such as sent,received,latency_ms"),
        (&[binary.as_str()], "not text in UTF-8"),
        (&[empty.as_str()], "the file is empty"),
        (&[csv.as_str(), "--columns", "latency=z"], "no column 'z'; the file has: x, y"),
        (&[csv.as_str(), "--columns", "latency=x:parsec"], "known: ns, us, ms, s, min, h"),
        (&[csv.as_str(), "--columns", "speed=x"], "not id, sent, received"),
        (&[toml.as_str()], "line 5, column 13: unknown statistic 'men'"),
        (&[no_file.as_str()], "nowhere.csv"),
        (&[toml.as_str(), "--columns", "latency=a_ms"], "--columns is for CSV files"),
        (&[], "required"),
    ] {
        let output = sandbox.audit(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(words), "{arguments:?}: {output:?}");
    }
    let output = sandbox.audit(&["last"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("there are no runs in"), "{output:?}");
}

#[test]
fn columns_option_maps_names_and_units() {
    let sandbox = Sandbox::new();
    let csv = sandbox
        .write("a.csv", "a,b,c\n1.000,1.250,250\n2.000,2.300,300\n3.000,3.100,900\n4.0,4.2,200\n");
    let output = sandbox.audit(&[
        &csv,
        "--columns",
        "sent=a:s,received=b:s",
        "--columns",
        "latency=c:ms",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let finding = &object(&output)["findings"][0];
    assert_eq!(finding["code"], "latency-contradicts-timestamps");
    assert_eq!((&finding["rows"], &finding["value"]), (&json!([3]), &json!(100.0)));
}

#[test]
fn run_is_audited_by_trial() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let imported = sandbox.dwell(&["import", file.to_str().unwrap(), "--json"]);
    let run = object(&imported)["run"].as_str().unwrap().to_owned();
    for name in [run.as_str(), "last"] {
        let output = sandbox.audit(&[name, "--json"]);
        let report = object(&output);
        assert_eq!(schema_errors(&report), Vec::<String>::new(), "{report:#}");
        assert_eq!(
            (&report["source"], &report["tables"][0]["name"]),
            (&json!(run), &json!("trial 1"))
        );
        assert!(report["tables"][0]["rows"].as_u64().unwrap() > 100, "{report:#}");
        assert_eq!(report["serious"], 0, "{report:#}");
    }
    let missing = sandbox.audit(&["20200101-1"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}

#[test]
fn documented_examples_print_what_the_page_shows() {
    let page = fs::read_to_string(repository("docs/audit.md")).unwrap();
    let sandbox = Sandbox::new();
    let bin = Path::new(DWELL).parent().unwrap().display().to_string();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap_or_default());
    let mut examples = 0;
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        // A file that the following examples use.
        if let Some(name) =
            line.strip_prefix("```toml file=").or_else(|| line.strip_prefix("```csv file="))
        {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            sandbox.write(name, &(body.join("\n") + "\n"));
        }
        if line != "```sh example" {
            continue;
        }
        let script: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let output = Command::new("sh")
            .args(["-ec", &script.join("\n")])
            .current_dir(sandbox.0.path())
            .env("PATH", &path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script:?}: {output:?}");
        examples += 1;
        // What it prints may follow.
        while lines.peek().is_some_and(|line| line.is_empty()) {
            lines.next();
        }
        if lines.peek() == Some(&"```text") {
            lines.next();
            let shown: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            assert_eq!(stdout(&output).trim_end(), shown.join("\n"), "{script:?}");
        }
    }
    assert!(examples >= 3, "{examples} examples");
}
