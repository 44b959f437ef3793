//! `dwell lab` from outside: real namespaces, real processes, and nothing left of them afterwards.
//! Needs root (or, for the rootless test, user namespaces); says SKIP and why where it has neither.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dwell_io::netns;
use dwell_io::process::{Handle, Signal};
use serde_json::Value;

const DWELL: &str = env!("CARGO_BIN_EXE_dwell-node");

/// Longer than anything here takes; a hang is a failure, not a wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lab that is gone when the test ends, however it ends.
struct TestLab {
    name: String,
}

impl TestLab {
    /// A name that no other test and no other run has.
    fn reserve(test: &str) -> Self {
        Self { name: format!("t{}-{test}", std::process::id()) }
    }

    fn up(test: &str, arguments: &[&str]) -> Self {
        let lab = Self::reserve(test);
        let output = lab.try_up(arguments);
        assert!(output.status.success(), "{output:?}");
        lab
    }

    fn try_up(&self, arguments: &[&str]) -> Output {
        dwell(&[&["lab", "up", "--name", &self.name], arguments].concat())
    }

    fn exec(&self, node: &str, command: &[&str]) -> Output {
        dwell(&[&["lab", "exec", "--lab", &self.name, node, "--"], command].concat())
    }

    fn netns(&self, node: &str) -> PathBuf {
        Path::new("/run/netns").join(format!("dwell-{}-{node}", self.name))
    }

    /// A socket in a node.
    fn socket(&self, node: &str, address: &str) -> UdpSocket {
        let socket =
            netns::within(&self.netns(node), || UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn describe(&self) -> Value {
        let output = dwell(&["lab", "list", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(all["schema"], "dwell.labs/1");
        assert_follows_the_schema(&all);
        let labs = all["labs"].as_array().unwrap();
        labs.iter().find(|lab| lab["name"] == self.name.as_str()).expect("the lab").clone()
    }

    /// The events of link 0, as many as its counters say.
    fn events(&self) -> Vec<Value> {
        let lab = self.describe();
        let text = fs::read_to_string(lab["links"][0]["event_log"].as_str().unwrap()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn down(&self) -> Output {
        dwell(&["lab", "down", &self.name])
    }

    fn namespaces(&self) -> usize {
        let prefix = format!("dwell-{}-", self.name);
        let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    }

    fn directory(&self) -> PathBuf {
        Path::new("/run/dwell/labs").join(&self.name)
    }

    /// Processes of the lab's links: they have its directory on their command line.
    fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let directory = self.directory().display().to_string();
        pids.filter(|pid| *pid != std::process::id())
            .filter_map(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                line.contains(&directory).then(|| format!("{pid} {line}"))
            })
            .collect()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.namespaces(), 0, "namespaces of {}", self.name);
        assert!(!self.directory().exists(), "{}", self.directory().display());
        assert_eq!(self.processes(), Vec::<String>::new());
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        if self.directory().exists() || self.namespaces() > 0 {
            self.down();
        }
    }
}

fn dwell(arguments: &[&str]) -> Output {
    Command::new(DWELL).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_follows_the_schema(printed: &Value) {
    let path = "../../docs/schema/dwell.lab-1.schema.json";
    let text = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let schema = serde_json::from_slice(&text).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> =
        schema.iter_errors(printed).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}\n{printed}");
}

/// Whether these tests can run; says why if not.
fn as_root() -> bool {
    let may = netns::may_create() && Path::new("/dev/net/tun").exists();
    if !may {
        skip("needs root and /dev/net/tun");
    }
    may
}

fn skip(reason: &str) {
    // The test runner names threads after their tests.
    println!("SKIP {}: {reason}", std::thread::current().name().unwrap_or("lab"));
}

/// Waits until `condition` holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Sends `count` numbered datagrams from n1 to n2 and returns the numbers that arrived, in their
/// order. When all is over is known from the link itself.
fn send_numbered(lab: &TestLab, count: u32) -> Vec<u32> {
    let receiver = lab.socket("n2", "198.19.0.2:7000");
    let sender = lab.socket("n1", "198.19.0.1:7001");
    let over = AtomicBool::new(false);
    let empty = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let arrived = scope.spawn(|| {
            receiver.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut arrived = Vec::new();
            let mut number = [0; 4];
            loop {
                // Asked before receiving: what was there when all was over is still taken.
                let last = over.load(Ordering::SeqCst);
                match receiver.recv(&mut number) {
                    Ok(_) => arrived.push(u32::from_be_bytes(number)),
                    Err(_) if last => return arrived,
                    Err(_) => _ = empty.fetch_add(1, Ordering::SeqCst),
                }
            }
        });
        for number in 0..count {
            sender.send_to(&number.to_be_bytes(), "198.19.0.2:7000").unwrap();
            if number % 50 == 49 {
                // Not faster than the receiver empties its buffer, however busy the machine is.
                let seen = empty.load(Ordering::SeqCst);
                until("the receiver's buffer is empty", || empty.load(Ordering::SeqCst) > seen);
            }
        }
        until("the link has delivered all", || {
            let c = &lab.describe()["links"][0]["counters"]["a_to_b"];
            let number = |name: &str| c[name].as_u64().unwrap();
            number("arrived") >= u64::from(count)
                && number("arrived") + number("duplicated")
                    == number("delivered") + number("dropped")
        });
        over.store(true, Ordering::SeqCst);
        arrived.join().unwrap()
    })
}

#[test]
fn nodes_reach_each_other_by_name_in_both_families_and_down_removes_all() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("line", &["line:3", "--rate", "100Mbit/s", "--mechanism", "tbf"]);
    let found = lab.exec("n1", &["getent", "ahosts", "n3"]);
    let found = String::from_utf8(found.stdout).unwrap();
    for address in ["198.19.0.3", "fd64:7765:6c6c:ffff::3"] {
        assert!(found.contains(address), "{found}");
        let address: IpAddr = address.parse().unwrap();
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let far = lab.socket("n3", &SocketAddr::new(address, 7_000).to_string());
        let near = lab.socket("n1", any);
        near.send_to(b"there", SocketAddr::new(address, 7_000)).unwrap();
        let (_, from) = far.recv_from(&mut [0; 8]).unwrap();
        let own = ["198.19.0.1", "fd64:7765:6c6c:ffff::1"].map(|a| a.parse::<IpAddr>().unwrap());
        assert!(own.contains(&from.ip()), "sent from the node's own address, not {from}");
        far.send_to(b"back", from).unwrap();
        near.recv(&mut [0; 8]).unwrap();
    }
    let description = lab.describe();
    assert_eq!(description["nodes"][2]["addresses"]["v4"], "198.19.0.3");
    assert_eq!(description["links"][0]["mechanism"], "tbf");
    let sent = &description["links"][0]["counters"]["a_to_b"]["delivered"];
    assert!(sent.as_u64() >= Some(2), "{description}");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn exec_is_the_command_itself_with_its_exit_code_its_signals_and_its_environment() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("exec", &["line:1"]);
    assert_eq!(lab.exec("n1", &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(lab.exec("n1", &["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    let output =
        lab.exec("n1", &["sh", "-c", "echo $DWELL_LAB $DWELL_NODE; grep SigBlk /proc/self/status"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("{} n1\n", lab.name)), "{text}");
    assert!(text.contains("0000000000000000"), "no signal is held back: {text}");
    let inside = lab.exec("n1", &["grep", "-c", " /sys ", "/proc/self/mountinfo"]).stdout;
    let outside = Command::new("grep").args(["-c", " /sys ", "/proc/self/mountinfo"]).output();
    assert_eq!(inside, outside.unwrap().stdout, "/sys is not mounted over");
    let missing = lab.exec("n9", &["true"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(said(&missing).contains("its nodes are n1"), "{}", said(&missing));
    let nothing = lab.exec("n1", &["/no/such/program"]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(said(&nothing).contains("/no/such/program"));
}

#[test]
fn a_wrong_command_line_is_a_usage_error_that_says_what_would_be_right() {
    for (arguments, right) in [
        (&["lab", "up", "line:0"][..], "1 to 250"),
        (&["lab", "up", "line:251"], "1 to 250"),
        (&["lab", "up", "ring:3"], "line:3, star:5"),
        (&["lab", "up", "line:2", "--rate", "10"], "100Mbit/s"),
        (&["lab", "up", "line:2", "--rate", "1bit/s"], "'--rate <RATE>': 1bit/s is too slow"),
        (&["lab", "up", "line:2", "--rate", "7bit/s"], "the least rate of a link is 8bit/s"),
        (&["lab", "up", "line:2", "--delay", "5"], "10ms"),
        (&["lab", "up", "line:2", "--delay", "-5ms"], "delay"),
        (&["lab", "up", "line:2", "--rate", "-1Mbit/s"], "'--rate <RATE>'"),
        (&["lab", "up", "line:2", "--seed", "-1"], "'--seed <SEED>': a seed is a whole number"),
        (&["lab", "up", "line:2", "--loss", "1"], "50%"),
        (&["lab", "up", "line:2", "--jitter", "1ms"], "at most the delay"),
        (&["lab", "up", "line:2", "--mechanism", "magic"], "netem, tbf and tap"),
        (&["lab", "up", "line:2", "--name", "a/b"], "letters, digits"),
        (&["lab", "down", "no-such-lab"], "there is no lab 'no-such-lab'"),
    ] {
        let output = dwell(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(said(&output).contains(right), "{arguments:?}: {}", said(&output));
        assert!(!said(&output).contains("unexpected argument"), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn nodes_may_be_called_like_words_of_the_programs_that_make_them() {
    if !as_root() {
        return;
    }
    const WORDS: &str = "a b d l m n t br up down master mtu group arp dev name index link type \
                         address addr netns promisc alias vrf txq state mode";
    let names: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = format!("version = 1\nnodes = {names:?}\n");
    // A ring, so that every name is an interface in two nodes; both ways of making interfaces.
    for (place, name) in names.iter().enumerate() {
        let next = names[(place + 1) % names.len()];
        let more = if place == 0 { ", delay = \"1ms\", mechanism = \"tap\"" } else { "" };
        text += &format!("[[links]]\na = \"{name}\"\nb = \"{next}\"\n");
        text += &more.replace(", ", "\n");
        text += "\n";
    }
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    fs::write(file.path(), text).unwrap();
    let lab = TestLab::up("words", &[file.path().to_str().unwrap(), "--rate", "100Mbit/s"]);
    let found = lab.exec("a", &["getent", "hosts", "mode"]);
    assert!(found.status.success(), "{found:?}");
    let far = lab.socket("vrf", "[::]:7000");
    let near = lab.socket("a", "[::]:0");
    let place = names.iter().position(|name| *name == "vrf").unwrap() + 1;
    near.send_to(b"hello", format!("[fd64:7765:6c6c:ffff::{place:x}]:7000")).unwrap();
    far.recv(&mut [0; 8]).unwrap();
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn the_least_rate_works() {
    if !as_root() {
        return;
    }
    for mechanism in ["tbf", "tap"] {
        let options = ["line:2", "--rate", "8bit/s", "--mechanism", mechanism];
        let lab = TestLab::up(&format!("slow{mechanism}"), &options);
        assert_eq!(lab.describe()["links"][0]["parameters"]["rate_bps"], 8);
    }
}

#[test]
fn two_labs_live_side_by_side_and_one_must_be_named() {
    if !as_root() {
        return;
    }
    let (one, other) = (TestLab::up("one", &["star:3"]), TestLab::up("two", &["line:2"]));
    let output = dwell(&["lab", "exec", "n1", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains(&one.name) && said(&output).contains(&other.name));
    let taken = one.try_up(&["line:2"]);
    assert!(!taken.status.success());
    assert!(said(&taken).contains("is there already"), "{}", said(&taken));
    // The same addresses in both, and neither hears the other.
    let in_other = other.socket("n2", "198.19.0.2:7000");
    let in_one = one.socket("n2", "198.19.0.2:7000");
    one.socket("n1", "0.0.0.0:0").send_to(b"one", "198.19.0.2:7000").unwrap();
    in_one.recv(&mut [0; 8]).unwrap();
    in_other.set_nonblocking(true).unwrap();
    assert!(in_other.recv(&mut [0; 8]).is_err());
    assert!(one.down().status.success());
    one.assert_nothing_is_left();
    assert_eq!(other.namespaces(), 2, "the other lab stays");
}

/// A namespace of somebody else's, with a process in it; gone when the test ends.
struct Stranger {
    netns: String,
    process: Child,
}

impl Stranger {
    fn new(netns: String) -> Self {
        assert!(Command::new("ip").args(["netns", "add", &netns]).status().unwrap().success());
        let sleep = ["netns", "exec", &netns, "sleep", "600"];
        let process = Command::new("ip").args(sleep).spawn().unwrap();
        let comm = format!("/proc/{}/comm", process.id());
        until("it sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
        Self { netns, process }
    }

    fn assert_unharmed(&mut self) {
        assert!(Path::new("/run/netns").join(&self.netns).exists(), "the namespace stays");
        assert_eq!(self.process.try_wait().unwrap(), None, "its process runs");
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        kill(&mut self.process);
        let _ = Command::new("ip").args(["netns", "del", &self.netns]).status();
    }
}

#[test]
fn a_namespace_of_somebody_elses_that_is_called_like_a_labs_is_left_alone() {
    if !as_root() {
        return;
    }
    // One in the way of a node, and one beside the nodes.
    for node in ["n2", "box"] {
        let lab = TestLab::reserve(&format!("strange{node}"));
        let mut stranger = Stranger::new(format!("dwell-{}-{node}", lab.name));
        let listed = dwell(&["lab", "list"]);
        assert!(!String::from_utf8_lossy(&listed.stdout).contains(&lab.name), "{listed:?}");
        let refused = lab.try_up(&["line:3"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(said(&refused).contains(&stranger.netns), "{}", said(&refused));
        assert_eq!(lab.namespaces(), 1, "nothing was made");
        assert!(!lab.directory().exists());
        stranger.assert_unharmed();
        assert_eq!(lab.down().status.code(), Some(2), "there is no such lab");
        stranger.assert_unharmed();
    }
    // One that comes while the lab is there.
    let lab = TestLab::up("stranger", &["line:2"]);
    let mut stranger = Stranger::new(format!("dwell-{}-late", lab.name));
    assert!(lab.down().status.success());
    assert_eq!(lab.namespaces(), 1, "only the stranger's");
    assert_eq!(netns::within(&lab.netns("late"), dwell_lab::here).unwrap(), None);
    stranger.assert_unharmed();
}

#[test]
fn a_namespace_that_somebody_else_makes_during_the_making_is_left_alone() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("race");
    let arguments = ["lab", "up", "line:200", "--name", &lab.name];
    let up = Command::new(DWELL).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    until("namespaces appear", || lab.namespaces() >= 1);
    let mut stranger = Stranger::new(format!("dwell-{}-n200", lab.name));
    let output = up.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("File exists"), "{}", said(&output));
    assert_eq!(lab.namespaces(), 1, "only the stranger's");
    assert!(!lab.directory().exists());
    stranger.assert_unharmed();
}

#[test]
fn a_lab_killed_in_its_making_leaves_nothing_after_down() {
    if !as_root() {
        return;
    }
    for namespaces in [1, 40, 80] {
        let lab = TestLab::reserve(&format!("kill{namespaces}"));
        let arguments = ["lab", "up", "line:80", "--name", &lab.name, "--rate", "10Mbit/s"];
        let mut up = Command::new(DWELL).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        until("namespaces appear", || lab.namespaces() >= namespaces);
        kill(&mut up);
        let down = lab.down();
        assert!(down.status.success(), "{down:?}");
        lab.assert_nothing_is_left();
    }
}

#[test]
fn a_lab_killed_while_its_links_start_leaves_nothing_after_down() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("killtap");
    let arguments =
        ["lab", "up", "line:6", "--name", &lab.name, "--delay", "1ms", "--mechanism", "tap"];
    let mut up = Command::new(DWELL).args(arguments).stdout(Stdio::null()).spawn().unwrap();
    until("a link signs", || lab.directory().join("link-0.pid").exists());
    kill(&mut up);
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn a_lab_that_cannot_be_finished_is_rolled_back() {
    if !as_root() {
        return;
    }
    let broken = tempfile::tempdir().unwrap();
    let tc = broken.path().join("tc");
    fs::write(&tc, "#!/bin/sh\necho 'no such luck' >&2\nexit 1\n").unwrap();
    Command::new("chmod").arg("755").arg(&tc).status().unwrap();
    let lab = TestLab::reserve("rollback");
    let path = format!("{}:{}", broken.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(DWELL)
        .args(["lab", "up", "line:3", "--rate", "1Mbit/s", "--mechanism", "tbf", "--name"])
        .arg(&lab.name)
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("tc failed: no such luck"), "{}", said(&output));
    lab.assert_nothing_is_left();
}

#[test]
fn an_interrupted_making_is_rolled_back_and_says_so() {
    if !as_root() {
        return;
    }
    let lab = TestLab::reserve("interrupt");
    let up = Command::new(DWELL)
        .args(["lab", "up", "line:100", "--name", &lab.name])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("namespaces appear", || lab.namespaces() >= 1);
    Handle::open(up.id()).unwrap().signal(Signal::Interrupt).unwrap();
    let output = up.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    lab.assert_nothing_is_left();
}

#[test]
fn down_ends_what_still_runs_in_the_lab_and_says_so() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("busy", &["line:2"]);
    // One that goes when asked, and one that does not.
    let start = |script: &str| {
        let ready = tempfile::NamedTempFile::new().unwrap();
        let script = format!("{script} echo ready > {}; exec sleep 600", ready.path().display());
        let child = Command::new(DWELL)
            .args(["lab", "exec", "--lab", &lab.name, "n2", "--", "sh", "-c", &script])
            .spawn()
            .unwrap();
        until("it runs", || fs::read_to_string(ready.path()).is_ok_and(|text| !text.is_empty()));
        child
    };
    let (mut meek, mut stubborn) = (start(""), start("trap '' TERM;"));
    let down = lab.down();
    assert!(down.status.success(), "{down:?}");
    assert!(said(&down).contains(&format!("ended sleep ({}), which still ran in n2", meek.id())));
    assert_eq!(meek.wait().unwrap().signal(), Some(15));
    assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
    lab.assert_nothing_is_left();
}

#[test]
fn a_lab_whose_state_is_lost_is_still_found_and_removed() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("lost", &["line:2", "--delay", "1ms", "--mechanism", "tap"]);
    assert_eq!(lab.processes().len(), 1, "the link");
    fs::remove_dir_all(lab.directory()).unwrap();
    let down = lab.down();
    assert!(down.status.success(), "{down:?}");
    until("the link ends itself", || lab.processes().is_empty());
    lab.assert_nothing_is_left();
}

#[test]
fn the_ends_of_the_longest_line_reach_each_other() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("long", &["line:250"]);
    let far = lab.socket("n250", "[::]:7000");
    let near = lab.socket("n1", "[::]:0");
    near.send_to(b"far away", "[fd64:7765:6c6c:ffff::fa]:7000").unwrap();
    far.recv(&mut [0; 8]).unwrap();
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn what_the_link_lost_is_exactly_what_did_not_arrive_and_its_seed_repeats_it() {
    if !as_root() {
        return;
    }
    const COUNT: u32 = 2_000;
    let run = |test: &str| -> BTreeSet<u32> {
        let options = ["line:2", "--loss", "5%", "--seed", "11", "--mechanism", "tap"];
        let lab = TestLab::up(test, &options);
        let arrived: BTreeSet<u32> = send_numbered(&lab, COUNT).into_iter().collect();
        let missing: BTreeSet<u32> = (0..COUNT).filter(|n| !arrived.contains(n)).collect();
        let events = lab.events();
        let dropped: BTreeSet<u32> = events
            .iter()
            .filter(|event| event["action"] == "drop" && event["dport"] == 7_000)
            .map(|event| u32::from_str_radix(&event["payload_head"].as_str().unwrap()[..8], 16))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(missing, dropped);
        let counters = &lab.describe()["links"][0]["counters"];
        assert_eq!(counters["events_lost"], 0);
        let counted = ["a_to_b", "b_to_a"].map(|d| counters[d]["lost"].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), events.len() as u64, "{counters}");
        missing
    };
    let (first, second) = (run("loss1"), run("loss2"));
    assert!((50..200).contains(&first.len()), "{} of {COUNT} at 5 %", first.len());
    assert_eq!(first, second, "the same seed, the same luck");
}

#[test]
fn doubled_and_reordered_datagrams_arrive_as_the_log_says() {
    if !as_root() {
        return;
    }
    let options = ["line:2", "--delay", "2ms", "--duplicate", "3%", "--reorder", "3%"];
    let lab = TestLab::up("double", &[&options[..], &["--mechanism", "tap"]].concat());
    let arrived = send_numbered(&lab, 1_000);
    let events = lab.events();
    let count = |action: &str| {
        let ours = |event: &&Value| event["action"] == action && event["dport"] == 7_000;
        events.iter().filter(ours).count()
    };
    assert_eq!(arrived.len(), 1_000 + count("duplicate"));
    assert!(count("duplicate") > 0 && count("reorder") > 0);
    assert!(!arrived.is_sorted(), "something overtook something");
}

#[test]
fn a_link_of_our_own_adds_its_delay_and_each_packets_own_transmission_time() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up(
        "wire",
        &["line:2", "--rate", "1Mbit/s", "--delay", "5ms", "--mechanism", "tap"],
    );
    let far = lab.socket("n2", "198.19.0.2:7000");
    let near = lab.socket("n1", "198.19.0.1:0");
    let median_rtt = |size: usize| {
        let message = vec![0; size];
        let mut buffer = [0; 2_000];
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                let sent = Instant::now();
                near.send_to(&message, "198.19.0.2:7000").unwrap();
                let (len, from) = far.recv_from(&mut buffer).unwrap();
                far.send_to(&buffer[..len], from).unwrap();
                near.recv(&mut buffer).unwrap();
                sent.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2].as_secs_f64()
    };
    for size in [58, 1_208] {
        // 42 bytes of Ethernet, IPv4 and UDP headers; there and back.
        let expected = 2.0 * (0.005 + (size + 42) as f64 * 8.0 / 1e6);
        let median = median_rtt(size);
        assert!((0.95..1.10).contains(&(median / expected)), "{size} B: {median} not {expected}");
    }
}

#[test]
fn a_link_ignores_the_terminals_interrupt_and_ends_when_asked() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("sigint", &["line:2", "--delay", "1ms", "--mechanism", "tap"]);
    let pid = fs::read_to_string(lab.directory().join("link-0.pid")).unwrap();
    let link = Handle::open(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
    link.signal(Signal::Interrupt).unwrap();
    let far = lab.socket("n2", "198.19.0.2:7000");
    lab.socket("n1", "0.0.0.0:0").send_to(b"still there", "198.19.0.2:7000").unwrap();
    far.recv(&mut [0; 16]).unwrap();
    link.signal(Signal::Terminate).unwrap();
    until("the link ends", || lab.processes().is_empty());
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

#[test]
fn a_link_whose_process_was_killed_is_called_dead() {
    if !as_root() {
        return;
    }
    let options = ["line:3", "--delay", "1ms", "--mechanism", "tap"];
    let lab = TestLab::up("dead", &options);
    assert_eq!(lab.describe()["state"], "up");
    let pid = fs::read_to_string(lab.directory().join("link-1.pid")).unwrap();
    let link = Handle::open(pid.split(' ').next().unwrap().parse().unwrap()).unwrap();
    link.signal(Signal::Kill).unwrap();
    assert!(link.wait(dwell_units::Nanos::from_secs(10)));
    let described = lab.describe();
    let states = [&described["links"][0]["state"], &described["links"][1]["state"]];
    assert_eq!((&described["state"], states), (&"broken".into(), [&"up".into(), &"dead".into()]));
    let listed = dwell(&["lab", "list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let line = listed.lines().find(|line| line.starts_with(&lab.name)).unwrap();
    assert!(line.contains("link n2 - n3 is dead"), "{line}");
    assert!(lab.down().status.success());
    lab.assert_nothing_is_left();
}

/// Somebody without any privilege, with a directory and a copy of the program of their own.
struct Nobody {
    home: tempfile::TempDir,
    lab: String,
}

impl Nobody {
    fn new(test: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::copy(DWELL, home.path().join("dwell-node")).unwrap();
        let chown = Command::new("chown").args(["65534:65534", "."]).current_dir(&home).status();
        assert!(chown.unwrap().success());
        Self { home, lab: TestLab::reserve(test).name.clone() }
    }

    fn program(&self) -> String {
        self.home.path().join("dwell-node").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", &self.program()])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.home.path())
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    fn dwell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn exec(&self, command: &[&str]) -> Output {
        self.dwell(&[&["lab", "exec", "--lab", &self.lab, "n1", "--"], command].concat())
    }

    /// Makes a lab; `None`, and why, where user namespaces are forbidden.
    fn up(&self, arguments: &[&str]) -> Option<Value> {
        let up = ["lab", "up", "--name", &self.lab, "--json"];
        let output = self.dwell(&[&up, arguments].concat());
        if output.status.code() == Some(4) {
            skip(said(&output).trim());
            return None;
        }
        assert!(output.status.success(), "{output:?}");
        let lab = serde_json::from_slice(&output.stdout).unwrap();
        assert_follows_the_schema(&lab);
        Some(lab)
    }

    fn holder(&self) -> Handle {
        let text =
            fs::read_to_string(self.home.path().join("dwell/labs").join(&self.lab).join("holder"));
        Handle::open(text.unwrap().split(' ').next().unwrap().parse().unwrap()).unwrap()
    }

    fn down(&self) {
        let down = self.dwell(&["lab", "down", &self.lab]);
        assert!(down.status.success(), "{down:?}");
        assert_eq!(fs::read_dir(self.home.path().join("dwell/labs")).unwrap().count(), 0);
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        self.dwell(&["lab", "down", &self.lab]);
    }
}

#[test]
fn without_root_a_lab_lives_in_a_user_namespace() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("nobody");
    let Some(lab) = nobody.up(&["line:3", "--rate", "100Mbit/s", "--mechanism", "tbf"]) else {
        return;
    };
    assert_eq!((&lab["rootless"], &lab["state"]), (&Value::Bool(true), &Value::from("up")));
    let hosts = nobody.exec(&["getent", "hosts", "n3"]);
    assert!(String::from_utf8_lossy(&hosts.stdout).contains("fd64:7765:6c6c:ffff::3"), "{hosts:?}");
    let route = nobody.exec(&["ip", "route", "get", "198.19.0.3"]);
    assert!(String::from_utf8_lossy(&route.stdout).contains("src 198.19.0.1"), "{route:?}");
    let inner = [&nobody.program()[..], "lab", "exec", "--lab", &nobody.lab, "n2", "--", "true"];
    let inner = nobody.exec(&inner);
    assert!(inner.status.success(), "from inside, too: {inner:?}");
    let all: Value =
        serde_json::from_slice(&nobody.dwell(&["lab", "list", "--json"]).stdout).unwrap();
    let ours = all["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == *nobody.lab);
    let counters = &ours.unwrap()["links"][0]["counters"]["a_to_b"];
    assert!(counters["delivered"].is_u64(), "{ours:?}");
    let holder = nobody.holder();
    nobody.down();
    assert!(holder.wait(dwell_units::Nanos::ZERO), "the holder has ended");
}

#[test]
fn without_root_a_command_in_a_node_works_in_the_directory_it_was_started_in() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("cwd");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    let script = "pwd; echo here > relative.txt";
    let exec = ["lab", "exec", "--lab", &nobody.lab, "n1", "--", "sh", "-c", script];
    // A directory that is there inside as well, and one that the lab's own /run hides.
    let hidden = tempfile::tempdir_in("/run").unwrap();
    let chown = Command::new("chown").arg("65534:65534").arg(hidden.path()).status();
    assert!(chown.unwrap().success());
    for place in [nobody.home.path(), hidden.path()] {
        let output = nobody.command(&exec).current_dir(place).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(place.join("relative.txt")).unwrap(), "here\n");
    }
    let output = nobody.command(&exec).current_dir(nobody.home.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        nobody.home.path().to_str().unwrap()
    );
}

#[test]
fn without_root_a_tap_link_is_refused_with_the_reason_and_nothing_is_left() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("notap");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    nobody.down();
    let up = ["lab", "up", "line:2", "--mechanism", "tap", "--name", &nobody.lab];
    let refused = nobody.dwell(&up);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(said(&refused).contains("run it as root"), "{}", said(&refused));
    assert_eq!(fs::read_dir(nobody.home.path().join("dwell/labs")).unwrap().count(), 0);
}

#[test]
fn a_rootless_lab_whose_holder_was_killed_is_removed_with_all_that_ran_in_it() {
    if !as_root() {
        return;
    }
    let nobody = Nobody::new("orphan");
    if nobody.up(&["line:1"]).is_none() {
        return;
    }
    let sleep = ["lab", "exec", "--lab", &nobody.lab, "n1", "--", "sleep", "600"];
    let mut inside = nobody.command(&sleep).spawn().unwrap();
    let comm = format!("/proc/{}/comm", inside.id());
    until("it sleeps", || fs::read_to_string(&comm).is_ok_and(|name| name == "sleep\n"));
    let holder = nobody.holder();
    holder.signal(Signal::Kill).unwrap();
    assert!(holder.wait(dwell_units::Nanos::from_secs(10)));
    let listed = nobody.dwell(&["lab", "list"]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let line = listed.lines().find(|line| line.starts_with(&nobody.lab)).unwrap();
    assert!(line.contains("broken: the process that kept it has ended"), "{line}");
    nobody.down();
    assert_eq!(inside.wait().unwrap().signal(), Some(15));
}

#[test]
fn a_file_says_which_nodes_there_are_and_a_process_knows_which_lab_it_is_in() {
    if !as_root() {
        return;
    }
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let text = r#"
        version = 1
        nodes = ["robot", "relay", "base"]
        links = [
            { a = "robot", b = "relay", rate = "10Mbit/s", mechanism = "tbf" },
            { a = "relay", b = "base" },
            { a = "base", b = "robot" },
        ]
    "#;
    fs::write(file.path(), text).unwrap();
    let lab = TestLab::up("file", &[file.path().to_str().unwrap()]);
    let far = lab.socket("base", "[::]:7000");
    let near = lab.socket("robot", "[::]:0");
    near.send_to(b"hello", "[fd64:7765:6c6c:ffff::3]:7000").unwrap();
    far.recv(&mut [0; 8]).unwrap();
    let description = lab.describe();
    assert_eq!(description["links"][0]["parameters"]["rate_bps"], 10_000_000);
    assert_eq!(description["links"][2]["mechanism"], "veth");
    assert_eq!(
        netns::within(&lab.netns("relay"), dwell_lab::here).unwrap(),
        Some(lab.name.clone())
    );
    assert_eq!(dwell_lab::here(), None, "not in a lab out here");
}
