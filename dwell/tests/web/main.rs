//! The web controller in a real browser: the real `dwell serve` over devices behind real sshd in a
//! lab. Prints SKIP with the reason without root, sshd, npm or chromium.

#[path = "../../../controller/hub/tests/store/agent.rs"]
#[expect(dead_code, reason = "shared with the tests of the hub")]
mod agent;
#[path = "../controller/fixture.rs"]
#[expect(dead_code, reason = "shared with the tests of the controller")]
mod fixture;
#[path = "../../../controller/server/tests/fleet/data.rs"]
#[expect(dead_code, reason = "shared with the tests of the server")]
mod fleet_data;
#[path = "../devices/lab_devices.rs"]
#[expect(dead_code, reason = "shared with the tests of devices")]
mod lab_devices;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dwell_io::process::{Handle, Signal};

use crate::fixture::{repository, skip, wait_for_exit};
use crate::lab_devices::DeviceLab;

/// A ping between two roles.
const PLAN: &str = "version = 1\nname = \"two\"\ntitle = \"Round trips between two devices\"\n\
    [topology]\nroles = [\"sender\", \"receiver\"]\n[ping]\nfrom = \"sender\"\nto = \"receiver\"\n\
    protocol = \"udp\"\ncount = 300\ninterval = \"1ms\"\n[trials]\nrepetitions = 3\n";

/// What `ping` of iputils prints.
const PING: &str = "PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n\
    64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.401 ms\n\
    64 bytes from 192.0.2.1: icmp_seq=2 ttl=64 time=0.385 ms\n\n\
    --- 192.0.2.1 ping statistics ---\n\
    2 packets transmitted, 2 received, 0% packet loss, time 1001ms\n\
    rtt min/avg/max/mdev = 0.385/0.393/0.401/0.008 ms\n";

fn web() -> PathBuf {
    repository("controller/web")
}

/// Installs the packages of controller/web; the reason if that is impossible.
fn packages() -> Result<(), String> {
    let output = Command::new(repository("setup/web-packages")).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| line.contains("error") || line.contains("npm"));
    if output.status.success() { Ok(()) } else { Err(last.unwrap_or("npm ci failed").to_owned()) }
}

fn has_chromium() -> bool {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().any(|name| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    })
}

#[test]
fn committed_script_equals_rebuild() {
    if let Err(reason) = packages() {
        return skip(&reason);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rebuilt-script");
    std::fs::create_dir_all(&folder).unwrap();
    let mut build = Command::new("node");
    build.args(["build.mjs", "--app"]).arg(&folder).current_dir(web());
    let ran = build.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let read = |path: PathBuf| std::fs::read(path).unwrap();
    let committed = read(repository("controller/server/assets/app.js"));
    assert!(read(folder.join("app.js")) == committed, "app.js differs from its sources: make web");
}

/// A server in the controller's node of a lab.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(lab: &DeviceLab) -> Self {
        Self::run(lab.controller(&[fixture::DWELL, "serve", "--listen", "127.0.0.1:0"]))
    }

    fn run(mut command: Command) -> Self {
        // The address is printed to stderr.
        let mut process = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let url = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_owned()))
            .expect("the server prints its address");
        // It must never wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, url: format!("http://{url}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(process) = Handle::open(self.process.id()) {
            let _ = process.signal(Signal::Interrupt);
        }
        let status = wait_for_exit(&mut self.process);
        if !std::thread::panicking() {
            assert!(status.success(), "dwell serve: {status}");
        }
    }
}

#[test]
fn pages_of_the_controller_work_in_a_browser() {
    if !has_chromium() {
        return skip("chromium is not installed (make setup)");
    }
    if let Err(reason) = packages() {
        return skip(&reason);
    }
    let Some(lab) = DeviceLab::new(2) else { return };
    let plan = lab.sandbox.write("two.toml", PLAN);
    for _ in 0..2 {
        let run = lab.dwell(&["run", &plan, "--on", "sender=d1,receiver=d2"]);
        assert!(run.status.success(), "{run:?}");
    }
    let checked = lab.dwell(&["device", "check"]);
    assert!(checked.status.success(), "{checked:?}");
    let ping = lab.sandbox.write("ping.txt", PING);
    assert!(lab.sandbox.dwell(&["import", &ping]).status.success());
    let server = Server::start(&lab);
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("web-pages");
    let _ = std::fs::remove_dir_all(&screenshots);
    let script = web().join("test/server.test.mjs");
    let node = ["node", "--test", "--test-reporter=spec"];
    let mut browser = lab.controller(&[&node[..], &[script.to_str().unwrap()]].concat());
    let second = &lab.devices[1].address;
    browser.env("DWELL_URL", &server.url).env("DWELL_SECOND", second);
    let ran = browser.env("DWELL_SCREENSHOTS", &screenshots).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    println!("{said}\nscreenshots are in {}", screenshots.display());
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn pages_of_a_fleet_work_in_a_browser() {
    if !has_chromium() {
        return skip("chromium is not installed (make setup)");
    }
    if let Err(reason) = packages() {
        return skip(&reason);
    }
    let data = tempfile::tempdir().unwrap();
    fleet_data::fill(data.path());
    let mut command = Command::new(fixture::DWELL);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::run(command);
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet-pages");
    let _ = std::fs::remove_dir_all(&screenshots);
    let mut browser = Command::new("node");
    browser.args(["--test", "--test-reporter=spec"]).arg(web().join("test/fleet.test.mjs"));
    browser.env("DWELL_URL", &server.url).env("DWELL_SCREENSHOTS", &screenshots);
    let ran = browser.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    println!("{said}\nscreenshots are in {}", screenshots.display());
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}
