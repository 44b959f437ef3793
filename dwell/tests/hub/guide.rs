//! The commands of the guide in docs/fleet.md (blocks marked `sh fleet`), in its order, with five devices of a
//! lab. Only the addresses are replaced, and `sleep` by a wait for the rows that the next commands show.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use serde_json::{Value, json};

use crate::fixture::{DWELL, object, repository, stdout, wait_until};
use crate::lab_devices::{DeviceLab, HOME, Peculiarity, nodes_dir};
use crate::schema::assert_matches_schema;

const NODES: [&str; 5] = ["berlin", "lyon", "oslo", "porto", "turin"];

/// Number of pairs that the nodes measure.
const PAIRS: usize = NODES.len() * (NODES.len() - 1);

/// Time limit of a block.
const BLOCK_TIMEOUT: &str = "90";

/// The spool of root's agent.
const SPOOL: &str = "/var/lib/dwell-agent";

/// Gives a device its own /var/lib, with the spool.
const OWN_SPOOL: &str = "mkdir -p /tmp/lib && mount --bind /tmp/lib /var/lib";

/// A person at the PC, who reaches five machines by SSH.
struct Reader {
    lab: DeviceLab,
    work: PathBuf,
    /// Time in which commands ran, without waits for results.
    typed: Duration,
}

impl Reader {
    fn new() -> Option<Self> {
        let of = |_| Peculiarity {
            setup: OWN_SPOOL.to_owned(),
            config: "Subsystem sftp internal-sftp".to_owned(),
            ..Peculiarity::default()
        };
        let lab = DeviceLab::with(NODES.len(), of)?;
        let work = lab.sandbox.path("work");
        // The program of `make nodes`, and dwell as it is installed.
        let built = work.join("target/nodes/x86_64");
        fs::create_dir_all(&built).unwrap();
        let node = nodes_dir().join(std::env::consts::ARCH).join("dwell-node");
        symlink(node, built.join("dwell-node")).unwrap();
        let programs = work.join("bin");
        fs::create_dir_all(&programs).unwrap();
        symlink(DWELL, programs.join("dwell")).unwrap();
        // ssh(1) finds its configuration by the user database, not by HOME.
        for program in ["ssh", "scp"] {
            let script = format!("#!/bin/sh\nexec /usr/bin/{program} -F ~/.ssh/config \"$@\"\n");
            let path = programs.join(program);
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        // Keys, user and port of the lab: the reader's own configuration.
        fs::create_dir_all(work.join(".ssh")).unwrap();
        fs::copy(lab.ssh_config(), work.join(".ssh/config")).unwrap();
        Some(Self { lab, work, typed: Duration::ZERO })
    }

    /// Types commands. Returns what they print; fails if one fails.
    fn types(&mut self, commands: &str) -> String {
        let mut commands = commands.to_owned();
        for (at, device) in self.lab.devices.iter().enumerate() {
            commands = commands
                .replace(&format!("192.0.2.1{}\n", at + 1), &format!("{}\n", device.address));
        }
        let shell = ["timeout", "--kill-after=5", BLOCK_TIMEOUT, "sh", "-euc", &commands];
        let log = self.work.join("log");
        let file = File::create(&log).unwrap();
        let path = std::env::var("PATH").unwrap();
        let since = Instant::now();
        // A file, because programs in the background keep a pipe open.
        let status = self
            .lab
            .controller(&shell)
            .current_dir(&self.work)
            .env("HOME", &self.work)
            .env("PATH", format!("{}:{path}", self.work.join("bin").display()))
            .env_remove("DWELL_DATA")
            .env_remove("DWELL_SSH_COMMAND")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .status()
            .unwrap();
        self.typed += since.elapsed();
        let shown = fs::read_to_string(log).unwrap();
        println!("--- {:.1?}\n{}\n{shown}", since.elapsed(), commands.trim_end());
        assert!(status.success(), "{status}");
        shown
    }

    /// Rows of 10 s of the pair of the guide.
    fn rows(&self) -> Vec<Value> {
        let query = ["query", "berlin:lyon", "--last", "10m", "--step", "10s", "--format", "json"];
        let data = self.work.join("dwell-data");
        let output = self.lab.sandbox.command(&query).env("DWELL_DATA", data).output().unwrap();
        if !output.status.success() {
            return Vec::new();
        }
        object(&output)["streams"][0]["rows"].as_array().unwrap().clone()
    }

    /// Number of pairs with rows.
    fn pairs(&self) -> usize {
        let data = self.work.join("dwell-data");
        let output = self.lab.sandbox.command(&["query"]).env("DWELL_DATA", data).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches(" mesh ").count()
    }

    /// Waits for a row with as many probes, in place of a `sleep` of the guide.
    fn wait_for_row(&self, probes: u64) {
        let has_row =
            || self.rows().iter().any(|row| row["packets"]["sent"].as_u64().unwrap() >= probes);
        wait_until("rows of 10 s", has_row);
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.work.join(name)).unwrap()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.work.join("hub.pid")).unwrap_or_default();
        if let Some(hub) = pid.trim().parse().ok().and_then(|pid| Handle::open(pid).ok()) {
            let _ = hub.signal(Signal::Kill);
        }
        if std::thread::panicking() {
            println!(
                "--- hub:\n{}",
                fs::read_to_string(self.work.join("hub.log")).unwrap_or_default()
            );
        }
        (0..self.lab.devices.len()).for_each(|index| self.lab.kill_all(index));
    }
}

/// Returns the blocks of the guide.
fn blocks() -> Vec<String> {
    let document = fs::read_to_string(repository("docs/fleet.md")).unwrap();
    let blocks = document.split("```sh fleet\n").skip(1);
    blocks.map(|block| block.split("```\n").next().unwrap().to_owned()).collect()
}

/// Returns the lines before and after the `sleep` of a block.
fn without_sleep(block: &str) -> (String, String) {
    let lines: Vec<_> = block.split_inclusive('\n').collect();
    let sleep = lines.iter().position(|line| line.starts_with("sleep ")).unwrap();
    (lines[..sleep].concat(), lines[sleep + 1..].concat())
}

#[test]
fn guide_leads_to_a_mesh_of_five_agents() {
    let Some(mut reader) = Reader::new() else { return };
    let blocks = blocks();
    let [machines, agents, schedule, hub, ask, change, stop] = &blocks[..] else {
        panic!("{blocks:#?}")
    };
    let since = Instant::now();
    let checked = reader.types(machines);
    assert!(NODES.iter().all(|node| checked.contains(node)), "{checked}");
    reader.types(agents);
    let cost = reader.types(schedule);
    assert!(cost.contains("applied as version 1"), "{cost}");
    let listed = reader.types(hub);
    assert!(!listed.contains("note:"), "{listed}");
    assert_eq!(NODES.iter().filter(|node| listed.contains(*node)).count(), NODES.len(), "{listed}");
    let (before, after) = without_sleep(ask);
    assert_eq!(before, "");
    reader.wait_for_row(5);
    wait_until("rows of all pairs", || reader.pairs() == PAIRS);
    let asked = reader.types(&after);
    // Each node measures each other one.
    assert_eq!(asked.matches(" mesh ").count(), PAIRS + 1, "{asked}");
    assert!(asked.contains("berlin:lyon  mesh  stamp  rtt_ns"), "{asked}");
    let table = asked.lines().skip_while(|line| !line.starts_with("berlin:lyon  mesh  stamp"));
    assert!((4..10).contains(&table.count()), "only rows since the start: {asked}");
    let answer: Value = serde_json::from_str(&reader.file("berlin-lyon.json")).unwrap();
    assert_matches_schema("dwell.query", &answer);
    let total = &answer["streams"][0]["total"];
    assert_eq!((&total["packets"]["lost"], &total["packets"]["late"]), (&json!(0), &json!(0)));
    assert!(total["n"].as_u64().unwrap() >= 5, "{total}");
    assert!(reader.file("berlin-lyon.csv").starts_with("sender,reflector,measure"));
    let (before, after) = without_sleep(change);
    let changed = reader.types(&before);
    assert!(changed.contains("applied as version 2"), "{changed}");
    reader.wait_for_row(100);
    reader.types(&after);
    let rows = reader.rows();
    let p99 = rows.iter().map(|row| &row["delays"]["percentiles"]["p99"]["high_ns"]);
    assert!(p99.filter_map(Value::as_i64).any(|ns| ns > 0), "{rows:#?}");
    let sent = |rows: &[Value]| -> u64 {
        rows.iter().map(|row| row["packets"]["sent"].as_u64().unwrap()).sum()
    };
    let before_stop = sent(&rows);
    // The agents end, and the hub collects their last records.
    let (agents, rest) = without_sleep(stop);
    reader.types(&agents);
    wait_until("the last records", || sent(&reader.rows()) > before_stop);
    reader.types(&rest);
    println!("guide: {:.0?}, of which {:.0?} in commands", since.elapsed(), reader.typed);
    let log = reader.file("hub.log");
    wait_until("the hub to stop", || reader.file("hub.log").contains("hub stopped"));
    assert!(!log.contains("panicked"), "{log}");
    for index in 0..NODES.len() {
        reader.lab.assert_idle(index);
        let device = &reader.lab.devices[index];
        let home = fs::read_dir(device.folder(HOME)).unwrap().flatten();
        let left: Vec<_> =
            home.map(|entry| entry.file_name()).filter(|name| name != ".cache").collect();
        assert!(left.is_empty(), "{left:?}");
        let spool = device.folder("/tmp").join("lib/dwell-agent");
        assert!(spool.join("status.json").exists(), "the guide names {SPOOL}");
    }
    let data = reader.work.join("dwell-data");
    let query = ["query", "berlin:lyon", "--last", "10m"];
    let output = reader.lab.sandbox.command(&query).env("DWELL_DATA", data).output().unwrap();
    assert!(stdout(&output).contains("total"), "{output:?}");
}
