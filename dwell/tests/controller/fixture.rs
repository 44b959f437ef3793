//! Shared test fixtures: a data directory that can find all processes started for it, small plans,
//! running dwell, waiting.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use dwell_io::netns;
use dwell_io::process::{Handle, Signal};
use dwell_store::{NewRun, NewTrial, RunKind, RunRow, Store};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const DWELL: &str = env!("CARGO_BIN_EXE_dwell");

/// Longer than any test step takes; a step that hangs fails.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The data directory of a test. All processes that dwell starts for it have its path in their
/// environment, so that leftover processes can be found.
pub(crate) struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Writes a plan of `trials` trials of some 30 ms each, three per block.
    pub(crate) fn plan(&self, trials: u32) -> String {
        assert_eq!(trials % 3, 0);
        self.write(
            &format!("small-{trials}.toml"),
            &format!(
                "version = 1\nname = \"small\"\n[topology]\nlab = \"line:2\"\n\
                 [ping]\nfrom = \"n1\"\nto = \"n2\"\nprotocol = \"udp\"\ncount = 30\n\
                 interval = \"1ms\"\nwarm_up = 2\n\
                 [matrix]\nsize = [\"100B\", \"200B\", \"300B\"]\n\
                 [trials]\nrepetitions = {}\nseed = 7\n",
                trials / 3
            ),
        )
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // The test's parent may ignore signals, like nohup does.
        let mut command = Command::new("env");
        command
            .args(["--default-signal", DWELL])
            .args(arguments)
            .env("DWELL_DATA", self.data())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn dwell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a command with its standard error in the file `stderr`.
    pub(crate) fn start(&self, command: &mut Command) -> Child {
        let stderr = fs::File::create(self.path("stderr")).unwrap();
        command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap()
    }

    /// Returns the standard error of [`Self::start`] so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(self.path("stderr")).unwrap()
    }

    /// Runs a command with `--json`, which must succeed, and returns its output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.dwell(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        object(&output)
    }

    /// Returns the states of a run's trials, by number.
    pub(crate) fn states(&self, run: &str) -> Vec<String> {
        let shown = self.json(&["show", run]);
        let trials = shown["trials"].as_array().unwrap();
        trials.iter().map(|trial| trial["state"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the first column of a query of the catalogue, as texts.
    pub(crate) fn query(&self, query: &str) -> Vec<String> {
        let path = self.data().join("catalogue.sqlite");
        if !path.exists() {
            return Vec::new();
        }
        let db = rusqlite::Connection::open(path).unwrap();
        db.busy_timeout(STEP_TIMEOUT).unwrap();
        let Ok(mut select) = db.prepare(query) else { return Vec::new() };
        let rows = select.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        rows.filter_map(|row| row.unwrap()).collect()
    }

    /// Returns the running processes that were started for this data directory.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("DWELL_DATA={}", self.data().display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        pids.filter(is_ours)
            .map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                (pid, String::from_utf8_lossy(&line).replace('\0', " "))
            })
            .collect()
    }

    /// Returns the node processes of this data directory.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let is_worker = |line: &String| line.contains(" worker") && !line.contains("lab exec");
        let processes = self.processes().into_iter();
        processes.filter(|(_, line)| is_worker(line)).map(|(pid, _)| pid).collect()
    }

    /// Returns the names of the labs of all runs.
    pub(crate) fn labs(&self) -> Vec<String> {
        self.query("SELECT DISTINCT json_extract(fleet, '$.lab') FROM runs")
    }

    /// Returns the remains of labs of this data directory's runs.
    fn left_of_labs(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for lab in self.labs() {
            let directory = Path::new("/run/dwell/labs").join(&lab);
            left.extend(directory.exists().then_some(directory));
            let prefix = format!("dwell-{lab}-");
            let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
            left.extend(names.map(|entry| entry.path()).filter(|path| {
                path.file_name().unwrap_or_default().to_string_lossy().starts_with(&prefix)
            }));
        }
        left
    }

    /// Asserts that no process, lab or received file is left. A node may take a second to notice
    /// that its pipe is closed.
    pub(crate) fn assert_no_leftovers(&self) {
        wait_until("every process to end", || self.processes().is_empty());
        assert_eq!(self.left_of_labs(), Vec::<PathBuf>::new());
        let incoming = fs::read_dir(self.data().join("incoming")).unwrap();
        assert_eq!(incoming.flatten().map(|entry| entry.path()).next(), None);
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            if let Ok(process) = Handle::open(pid) {
                let _ = process.signal(Signal::Kill);
            }
        }
        if std::thread::panicking() {
            for lab in self.labs() {
                let _ = Command::new(DWELL).args(["lab", "down", &lab]).output();
            }
        }
    }
}

/// Returns the standard output of a command, parsed as JSON.
pub(crate) fn object(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Returns the standard error of a command.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the standard output of a command.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for a child to exit.
pub(crate) fn wait_for_exit(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    wait_until("a child to end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Returns the path of a file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Compares text with a golden file. `DWELL_GOLDEN=write cargo test -p dwell` updates the files.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = repository("dwell/tests/controller/golden").join(name);
    if std::env::var_os("DWELL_GOLDEN").is_some_and(|value| value == "write") {
        fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{}:\n{golden}\n--- now:\n{text}", path.display());
}

/// Whether this process may create labs, which needs root; reports a skip if not.
pub(crate) fn as_root() -> bool {
    let may = netns::may_create();
    if !may {
        skip("needs root");
    }
    may
}

pub(crate) fn skip(reason: &str) {
    // The test harness names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("controller"));
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < STEP_TIMEOUT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Creates a run of an empty plan. Its trials have not started.
pub(crate) fn begin_run(store: &mut Store, trials: Vec<NewTrial>) -> RunRow {
    let new = NewRun {
        kind: RunKind::Run,
        name: "made up".to_owned(),
        title: None,
        plan: Some(String::new()),
        lab_files: None,
        settings: Vec::new(),
        seed: 1,
        axes: serde_json::json!([]),
        fleet: None,
        dwell: "0".to_owned(),
        owner: "alice@lab".to_owned(),
        trials,
    };
    let name = store.begin_run(&new).unwrap();
    store.run(&name).unwrap()
}
