//! An ssh that stops at any step: each has its deadline and message, and leaves no process. An ssh that
//! is slow is waited for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dwell_io::process::{Handle, Signal};
use serde_json::Value;

use crate::fixture::{Sandbox, object, wait_for_exit, wait_until};
use crate::lab_devices::nodes_dir;

/// A stand-in for ssh whose host says where it hangs. `local` runs the remote command on this machine,
/// with a home of its own.
const STAND_IN: &str = r#"#!/bin/bash
remote=${@: -1}
host=${@: -2:1}
hang() { sleep 1000 & exec sleep 1000; }
greet() {
  echo Welcome
  echo dwell-bootstrap 1
  printf "machine=$(uname -m)\nkernel=1\nuid=0\naddress=127.0.0.1\ndir=/x\nrefused=\nhave=$1\nend\n"
  read -r line
}
receive() {
  left=${line#put }
  while [ "$left" -gt 0 ]; do
    piece=$((left < 262144 ? left : 262144))
    head -c $piece > /dev/null
    echo got
    left=$((left - piece))
  done
}
enter() { mkdir -p "$HOMES/$host"; cd "$HOMES/$host"; }
serve() {
  exec env HOME="$PWD" PATH="$HOMES/bin:$PATH" TMPDIR="$PWD" XDG_CACHE_HOME= SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" sh -c "$remote"
}
case $host in
  connect | waits*) hang ;;
  greeting) echo Welcome; hang ;;
  facts) echo dwell-bootstrap 1; echo machine=x86_64; hang ;;
  ready) greet no; hang ;;
  upload) greet no; echo ready; head -c 100000 > /dev/null; hang ;;
  piece) greet no; echo ready; head -c 262144 > /dev/null; echo got; hang ;;
  stored) greet no; echo ready; receive; hang ;;
  running) greet yes; hang ;;
  doctor) greet yes; echo running; echo '{'; hang ;;
  endless) yes ;;
  long) head -c 100000 /dev/zero ;;
  ended) exit 0 ;;
  refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
  silent) sleep 10; echo "ssh: connect to host silent port 22: Connection timed out" >&2; exit 255 ;;
  local*) enter; serve ;;
  slow) enter
    # The file is the buffer of a connection that transfers RATE bytes per second.
    : > buffer
    exec 3<&0
    cat <&3 >> buffer &
    tail -c +1 -f --pid=$! buffer | perl -e '
      while (my $len = sysread STDIN, my $bytes, 8192) {
        syswrite STDOUT, $bytes;
        select undef, undef, undef, $len / $ENV{RATE};
      }' | serve ;;
esac
"#;

/// A data directory whose devices are reached by the stand-in.
pub(crate) struct StandIn {
    pub(crate) sandbox: Sandbox,
}

impl StandIn {
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new();
        let ssh = sandbox.write("ssh", STAND_IN);
        fs::set_permissions(ssh, fs::Permissions::from_mode(0o700)).unwrap();
        Self { sandbox }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(arguments);
        command.env("DWELL_SSH_COMMAND", self.sandbox.path("ssh"));
        command.env("DWELL_NODES", nodes_dir()).env("HOMES", self.sandbox.path("homes"));
        command
    }

    pub(crate) fn add(&self, name: &str, options: &[&str]) {
        let arguments = [&["device", "add", name, name], options].concat();
        let added = self.command(&arguments).output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }

    /// Writes a plan, on a port that no other test uses, because these devices are one machine.
    pub(crate) fn plan(&self, text: &str) -> String {
        let free = std::net::UdpSocket::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let text = text.replace("[ping]\n", &format!("[ping]\nport = {free}\n"));
        self.sandbox.write("plan.toml", &text)
    }

    /// Checks all devices and returns their results by name.
    pub(crate) fn check(&self) -> std::collections::BTreeMap<String, Value> {
        let checked = object(&self.command(&["device", "check", "--json"]).output().unwrap());
        let devices = checked["devices"].as_array().unwrap().clone();
        let name = |device: &Value| device["name"].as_str().unwrap().to_owned();
        devices.into_iter().map(|device| (name(&device), device)).collect()
    }
}

pub(crate) fn interrupt(process: &Child) {
    Handle::open(process.id()).unwrap().signal(Signal::Interrupt).unwrap();
}

#[test]
fn each_hang_has_a_deadline_and_leaves_no_process() {
    const EXPECTED: [(&str, &str); 13] = [
        ("connect", "no answer within 20 s from `ssh connect`"),
        ("greeting", "no answer within 20 s"),
        ("facts", "no answer within 20 s"),
        ("ready", "the copy of the node program stopped for 10 s"),
        ("upload", "the copy of the node program stopped for 10 s"),
        ("piece", "the copy of the node program stopped for 10 s"),
        ("stored", "the node program was not stored within 30 s"),
        ("running", "the node program did not start within 10 s"),
        ("doctor", "took longer than 30 s"),
        ("endless", "its login shell prints text"),
        ("long", "its answer is too long"),
        ("ended", "ended without an answer"),
        ("refused", "Connection refused"),
    ];
    let stand_in = StandIn::new();
    for (name, _) in EXPECTED {
        stand_in.add(name, &[]);
    }
    let started = Instant::now();
    let results = stand_in.check();
    // The longest time-outs are those to store the program and of the doctor.
    assert!(started.elapsed() < Duration::from_secs(45), "{:?}", started.elapsed());
    for (name, text) in EXPECTED {
        let error = results[name]["error"].as_str().unwrap();
        assert!(error.contains(text), "{name}: {error}");
    }
    assert_eq!(stand_in.sandbox.processes(), []);
}

#[test]
fn worker_that_never_greets_fails_the_run() {
    let stand_in = StandIn::new();
    let ssh = fs::read_to_string(stand_in.sandbox.path("ssh")).unwrap();
    let ssh = ssh.replace(
        "doctor) greet yes; echo running; echo '{'; hang",
        "doctor) greet yes; echo running; hang",
    );
    fs::write(stand_in.sandbox.path("ssh"), ssh).unwrap();
    stand_in.add("doctor", &["--address", "127.0.0.1"]);
    stand_in.add("local", &["--address", "127.0.0.1"]);
    let plan = stand_in.plan(crate::runs::PLAN);
    let started = Instant::now();
    let mut command = stand_in.command(&["run", &plan, "--on", "sender=local,receiver=doctor"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let stderr = crate::fixture::stderr(&output);
    assert!(
        stderr.contains("device doctor: the node program did not start within 10 s"),
        "{stderr}"
    );
    wait_until("every process to end", || stand_in.sandbox.processes().is_empty());
}

#[test]
fn slow_copy_is_waited_for_by_a_run() {
    // Longer than a node lives without requests, and than any time-out of a copy.
    const COPY_TIME: u64 = 35;
    let stand_in = StandIn::new();
    for name in ["local", "slow"] {
        stand_in.add(name, &["--address", "127.0.0.1"]);
    }
    let program = nodes_dir().join(std::env::consts::ARCH).join("dwell-node");
    let rate = fs::metadata(program).unwrap().len() / COPY_TIME;
    let plan = stand_in.plan(crate::runs::PLAN);
    let mut command = stand_in.command(&["run", &plan, "--on", "sender=local,receiver=slow"]);
    let started = Instant::now();
    let output = command.env("RATE", rate.to_string()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(started.elapsed() > Duration::from_secs(COPY_TIME), "{:?}", started.elapsed());
    assert_eq!(stand_in.sandbox.query("SELECT state FROM trials"), ["finished"; 3]);
    wait_until("every process to end", || stand_in.sandbox.processes().is_empty());
}

#[test]
fn check_and_removal_end_at_an_interrupt() {
    let stand_in = StandIn::new();
    stand_in.add("local", &[]);
    // More than are connected at the same time.
    for number in 0..40 {
        stand_in.add(&format!("waits{number}"), &[]);
    }
    for (arguments, ready) in [
        (&["device", "check"][..], "answered after"),
        (&["device", "remove", "waits0", "waits1", "--yes", "--force"], ""),
    ] {
        let log = stand_in.sandbox.path("log");
        let mut command = stand_in.command(arguments);
        let output = fs::File::create(&log).unwrap();
        let mut running = command.stdout(output).stderr(Stdio::null()).spawn().unwrap();
        wait_until("ssh to hang", || {
            fs::read_to_string(&log).unwrap().contains(ready)
                && stand_in.sandbox.processes().iter().any(|(_, line)| line.contains("sleep"))
        });
        let interrupted = Instant::now();
        interrupt(&running);
        assert_eq!(wait_for_exit(&mut running).code(), Some(130), "{arguments:?}");
        assert!(interrupted.elapsed() < Duration::from_secs(10), "{:?}", interrupted.elapsed());
        wait_until("every process to end", || stand_in.sandbox.processes().is_empty());
    }
    // An interrupt says nothing about the devices.
    let devices = "SELECT name FROM devices JOIN device_checks ON device_id = devices.id";
    assert_eq!(stand_in.sandbox.query(devices), ["local"]);
    assert_eq!(stand_in.sandbox.query("SELECT name FROM devices").len(), 41);
}

#[test]
fn devices_that_are_down_delay_a_check_within_bounds() {
    let stand_in = StandIn::new();
    let mut up = 0;
    for number in 0..200 {
        // 150 are down: half of them refuse, half of them do not answer.
        let (name, host) = match number % 8 {
            0 | 1 => (format!("up{number}"), format!("local{number}")),
            2..=4 => (format!("closed{number}"), "refused".to_owned()),
            _ => (format!("silent{number}"), "silent".to_owned()),
        };
        up += usize::from(number % 8 < 2);
        let added = stand_in.command(&["device", "add", &name, &host]).output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }
    let started = Instant::now();
    let results = stand_in.check();
    println!("200 devices, {} of them down, were checked in {:.1?}", 200 - up, started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    let of_state = |state| results.values().filter(|result| result["state"] == state).count();
    let errors = results.iter().filter(|(name, _)| name.starts_with("up"));
    let errors: Vec<_> = errors.filter_map(|(_, result)| result["error"].as_str()).collect();
    assert_eq!(errors, [""; 0]);
    assert_eq!((of_state("answered"), of_state("failed")), (50, 150));
    assert_eq!(stand_in.sandbox.processes(), []);
}
