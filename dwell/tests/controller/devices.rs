//! The registry of devices. A stand-in for ssh runs the remote command in a directory of this machine,
//! with a stand-in node; tests with a real sshd are in `dwell/tests/devices`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use dwell_store::Store;
use serde_json::{Value, json};

use crate::fixture::{
    DWELL, Sandbox, as_root, begin_run, object, repository, skip, stderr, stdout,
};
use crate::schema::{assert_matches_schema, assert_refuses};

/// Runs the last argument by sh, in the home of the host before it. Hosts `down*` refuse the
/// connection; hosts `plain*` are reached as a user without privileges.
const SSH: &str = r#"#!/bin/sh
for word in "$@"; do host=$remote; remote=$word; done
case $host in
down*) echo "ssh: connect to host $host port 22: Connection refused" >&2; exit 255;;
esac
unset XDG_CACHE_HOME
HOME=$DEVICE_HOMES/$host
export HOME
mkdir -p "$HOME"
case $host in
plain*) chmod 777 "$HOME"; exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$remote";;
esac
exec sh -c "$remote"
"#;

/// A node whose doctor prints the file `doctor.json` beside the homes.
const NODE: &str =
    "#!/bin/sh\n[ \"$1 $2\" = 'doctor --json' ] && exec cat \"$HOME/../doctor.json\"\nexit 2\n";

/// A data directory with devices behind the stand-ins.
pub(crate) struct Devices {
    pub(crate) sandbox: Sandbox,
}

impl Devices {
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new();
        let program = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(&sandbox.path("ssh"), SSH);
        let arch = std::env::consts::ARCH;
        program(&sandbox.path(&format!("nodes/{arch}/dwell-node")), NODE);
        fs::create_dir(sandbox.path("homes")).unwrap();
        let devices = Self { sandbox };
        devices.set_doctor(&json!({
            "schema": "dwell.doctor/1",
            "machine": { "kernel": "6.1", "cpu": "Cortex-A72", "cores": 4, "governor": null },
            "clocks": { "source": "arch_sys_counter", "utc_error_ns": 1_500_000 },
            "interfaces": [{ "name": "eth0", "up": true, "driver": "bcmgenet" }],
            "abilities": [
                { "name": "real-time scheduling", "available": true, "reason": null },
            ],
            "advice": ["the CPU frequency varies"],
        }));
        devices
    }

    fn set_doctor(&self, doctor: &Value) {
        fs::write(self.sandbox.path("homes/doctor.json"), doctor.to_string()).unwrap();
    }

    /// Lets the user of the hosts `plain*` reach their homes.
    fn let_others_in(&self) {
        let homes = self.sandbox.path("homes");
        for dir in [homes.parent().unwrap(), &homes] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.sandbox.command(&[&["device"], arguments].concat());
        command
            .env("DWELL_SSH_COMMAND", self.sandbox.path("ssh"))
            .env("DWELL_NODES", self.sandbox.path("nodes"))
            .env("DEVICE_HOMES", self.sandbox.path("homes"));
        command
    }

    pub(crate) fn dwell(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its standard output.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.dwell(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        stdout(&output)
    }

    /// Runs a command that must fail with this exit code, and returns its standard error.
    fn failure(&self, arguments: &[&str], code: i32) -> String {
        let output = self.dwell(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        let stderr = stderr(&output);
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        object(&self.dwell(&[arguments, &["--json"]].concat()))
    }

    /// Names of the listed devices.
    fn names(&self) -> Vec<String> {
        let listed = self.json(&["list"]);
        let devices = listed["devices"].as_array().unwrap();
        devices.iter().map(|it| it["device"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The deployment in the home of a host.
    fn deployment(&self, host: &str) -> PathBuf {
        self.sandbox.path(&format!("homes/{host}/.cache/dwell"))
    }
}

#[test]
fn empty_list_says_how_to_add_and_creates_nothing() {
    let devices = Devices::new();
    assert!(devices.text(&["list"]).contains("add one with `dwell device add NAME"));
    let boards = devices.text(&["list", "--verdicts"]);
    assert!(boards.contains("TP-LINK ML-3020") && boards.contains("add one with"), "{boards}");
    assert_matches_schema("dwell.devices", &devices.json(&["list"]));
    for arguments in [&["check"][..], &["show", "pi4"], &["edit", "pi4", "--sudo"]] {
        assert!(devices.failure(arguments, 1).contains("no devices in"), "{arguments:?}");
    }
    assert!(devices.failure(&["remove", "pi4", "--yes"], 1).contains("no devices in"));
    assert!(!devices.sandbox.data().exists());
}

#[test]
fn described_device_is_added_edited_and_cleared() {
    let devices = Devices::new();
    let added = devices.text(&[
        "add",
        "pi4",
        "pi@board:2222",
        "--model",
        "Raspberry Pi 4B",
        "--role",
        "sender",
        "--interface",
        "eth0,wlan0",
        "--address",
        "192.0.2.7",
        "--address",
        "2001:db8::7",
        "--tag",
        "shelf,lab",
        "--note",
        "new antenna",
        "--price",
        "55 USD",
    ]);
    assert_eq!(added, "added device pi4; `dwell device check pi4` tries it\n");
    let twice = devices.failure(&["add", "pi4", "other"], 2);
    assert!(twice.contains("already a device 'pi4' (pi@board:2222)"), "{twice}");
    let shown = devices.json(&["show", "pi4"]);
    assert_matches_schema("dwell.device", &shown);
    assert_eq!(
        shown["device"],
        json!({
            "name": "pi4", "destination": "pi@board:2222", "model": "Raspberry Pi 4B",
            "role": "sender", "interfaces": ["eth0", "wlan0"],
            "addresses": ["192.0.2.7", "2001:db8::7"], "tags": ["shelf", "lab"],
            "notes": "new antenna", "price": "55 USD", "sudo": false,
        })
    );
    let changed = devices.text(&["edit", "pi4", "--name", "pi4-roof", "--tag", "roof", "--sudo"]);
    for line in ["name: pi4 -> pi4-roof", "tag: shelf, lab -> roof", "sudo: none -> yes"] {
        assert!(changed.contains(line), "{changed}");
    }
    let clear = ["edit", "pi4-roof", "--clear", "note,price", "--clear", "sudo"];
    assert!(devices.text(&clear).contains("price: 55 USD -> none"));
    let device = &devices.json(&["show", "pi4-roof"])["device"];
    assert_eq!((&device["notes"], &device["price"]), (&Value::Null, &Value::Null));
    assert_eq!((&device["sudo"], &device["model"]), (&json!(false), &json!("Raspberry Pi 4B")));
    let text = devices.text(&["show", "pi4-roof"]);
    for line in ["device pi4-roof  pi@board:2222", "never checked; `dwell device check pi4-roof`"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(text.contains("plans/device-accuracy.toml --on sender=pi4-roof"), "{text}");
    devices.text(&["add", "gw", "h"]);
    assert!(devices.failure(&["edit", "gw", "--name", "pi4-roof"], 2).contains("already a device"));
    assert_eq!(devices.names(), ["gw", "pi4-roof"]);
}

#[test]
fn invalid_fields_are_usage_errors_that_change_nothing() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "board"]);
    for (arguments, words) in [
        (&["add", "-x", "h"][..], "unexpected argument"),
        (&["add", "a b", "h"], "invalid device name 'a b'"),
        (&["add", "a", "-oProxyCommand=x"], "unexpected argument"),
        (&["add", "a", "pi@-oProxyCommand=x"], "invalid destination"),
        (&["add", "a", "h:0"], "invalid destination"),
        (&["add", "a", "h", "--address", "board"], "give an IP address"),
        (&["add", "a", "h", "--interface", "eth 0"], "an interface has a name like eth0"),
        (&["add", "a", "h", "--tag", "x y"], "a tag has letters"),
        (&["edit", "pi4"], "nothing to change"),
        (&["edit", "pi4", "--clear", "colour"], "known fields: model, role"),
        (&["edit", "pi4", "--price", "1 USD", "--clear", "price"], "--price sets the field"),
        (&["edit", "pi4", "--name", "../x"], "invalid device name"),
        (&["edit", "pi4", "--model", ""], "it is empty"),
        (&["check", "--tag", "shelf"], "no device has the tag 'shelf'; no device has tags"),
        (&["show", "p14"], "there is no device 'p14'; did you mean pi4?"),
        (&["remove", "pi4", "pi5", "--yes"], "there is no device 'pi5'"),
    ] {
        let stderr = devices.failure(arguments, 2);
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
    assert_eq!(devices.names(), ["pi4"]);
}

#[test]
fn check_stores_answers_and_failures_with_their_date() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "board", "--tag", "shelf"]);
    devices.text(&["add", "pi3", "down", "--tag", "shelf"]);
    devices.text(&["add", "gw", "gateway"]);
    let output = devices.dwell(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stdout(&output);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("pi4").contains("answered after") && line("pi4").contains("copied"), "{text}");
    assert!(
        line("pi3").contains("failed: ") && line("pi3").contains("Connection refused"),
        "{text}"
    );
    assert!(text.contains("2 of 3 devices answered"), "{text}");
    let again = devices.text(&["check", "pi4"]);
    assert!(!again.contains("copied"), "the program is there: {again}");
    let checked = devices.json(&["check", "--tag", "shelf", "gw"]);
    assert_matches_schema("dwell.device-check", &checked);
    assert_refuses("dwell.device-check", &checked, |it| it["devices"][0]["state"] = json!("fine"));
    let states = checked["devices"].as_array().unwrap().iter();
    let states: Vec<_> = states.map(|it| (it["name"].as_str(), it["state"].as_str())).collect();
    let [answered, failed] = ["answered", "failed"].map(Some);
    assert_eq!(states, [(Some("gw"), answered), (Some("pi3"), failed), (Some("pi4"), answered)]);
    assert_eq!((&checked["checked"], &checked["answered"]), (&json!(3), &json!(2)));
    let listed = devices.json(&["list", "--verdicts"]);
    assert_matches_schema("dwell.devices", &listed);
    assert_refuses("dwell.devices", &listed, |it| it["devices"][0]["device"]["price"] = json!(1));
    assert_refuses("dwell.devices", &listed, |it| it["published"][0]["cite"] = Value::Null);
    let table = devices.text(&["list"]);
    let line = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("pi4").contains("ok, ") && line("pi4").contains(" s ago"), "{table}");
    assert!(line("pi3").contains("failed, ") && line("pi3").contains("refused"), "{table}");
    let uname = Command::new("uname").arg("-r").output().unwrap();
    assert!(line("gw").contains(stdout(&uname).trim()), "{table}");
    let shown = devices.json(&["show", "pi4"]);
    assert_matches_schema("dwell.device", &shown);
    assert_eq!(shown["answer"]["doctor"]["machine"]["cpu"], "Cortex-A72");
    let text = devices.text(&["show", "pi4"]);
    for words in ["Cortex-A72, 4 CPUs", "within 1.500 ms", "eth0 (bcmgenet)", "ok       real-time"]
    {
        assert!(text.contains(words), "no '{words}' in {text}");
    }
    assert!(devices.text(&["list", "--tag", "shelf"]).lines().count() == 3);
    // The last answer outlives a failure.
    devices.text(&["edit", "pi4", "--destination", "down-now"]);
    devices.failure(&["check", "pi4"], 1);
    let text = devices.text(&["show", "pi4"]);
    assert!(text.contains("Connection refused") && text.contains("Cortex-A72"), "{text}");
}

#[test]
fn added_device_is_checked_at_once_on_request() {
    let devices = Devices::new();
    let text = devices.text(&["add", "pi4", "board", "--check"]);
    assert!(text.starts_with("added device pi4\n") && text.contains("answered after"), "{text}");
    let output = devices.dwell(&["add", "pi3", "down", "--check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(devices.names(), ["pi3", "pi4"], "a device that is off is added, too");
    let twin = devices.dwell(&["add", "twin", "board"]);
    assert!(twin.status.success());
    assert!(stderr(&twin).contains("device pi4 has the same destination board"), "{twin:?}");
}

#[test]
fn hostile_texts_are_escaped() {
    let devices = Devices::new();
    let hostile = "evil\u{1b}[2J\u{202e}\nroot  forged\r";
    devices.set_doctor(&json!({
        "machine": { "cpu": hostile, "cores": "many" },
        "interfaces": [{ "name": hostile, "up": true }, 7],
        "abilities": [
            { "name": hostile, "available": false, "reason": hostile },
            { "name": "real-time scheduling", "available": false,
              "reason": format!("Operation not permitted {hostile}") },
        ],
        "advice": [hostile, {}],
    }));
    let note = ["add", "pi4", "board", "--note", hostile, "--model", hostile, "--price", hostile];
    devices.text(&note);
    devices.text(&["add", "twin", "board", "--role", hostile]);
    for arguments in [
        &["check"][..],
        &["list"],
        &["list", "--verdicts"],
        &["show", "pi4"],
        &["edit", "pi4", "--note", "\u{9b}31m changed"],
        &["check", "--json"],
        &["list", "--json"],
        &["show", "pi4", "--json"],
    ] {
        let text = devices.text(arguments);
        let control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(control), "{arguments:?}: {text:?}");
        assert!(!text.contains("\nroot  forged"), "{arguments:?}: {text}");
    }
    let shown = devices.json(&["show", "pi4"]);
    assert_eq!(shown["device"]["model"], hostile.trim(), "JSON keeps the meaning");
}

#[test]
fn answer_that_is_no_json_is_a_failed_check() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "board"]);
    fs::write(devices.sandbox.path("homes/doctor.json"), "Segmentation fault\n").unwrap();
    let output = devices.dwell(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains("failed: "), "{output:?}");
    let shown = devices.json(&["show", "pi4"]);
    assert_eq!((&shown["last_check"]["answered"], &shown["answer"]), (&json!(false), &Value::Null));
}

#[test]
fn removal_needs_consent_and_cleans_the_device() {
    let devices = Devices::new();
    for (name, host) in [("pi4", "board"), ("pi3", "cellar"), ("gone", "down"), ("new", "attic")] {
        devices.text(&["add", name, host]);
    }
    devices.dwell(&["check", "pi4", "pi3", "gone"]);
    assert!(devices.deployment("board").exists());
    let asked = devices.failure(&["remove", "pi4"], 2);
    assert!(asked.contains("device pi4 (board), with the node program on it"), "{asked}");
    assert!(asked.contains("--yes"), "{asked}");
    assert_eq!(devices.text(&["remove", "pi4", "--yes"]), "removed device pi4\n");
    assert!(!devices.deployment("board").exists());
    let kept = devices.text(&["remove", "pi3", "--yes", "--keep-files"]);
    assert_eq!(kept, "removed device pi3; the node program stays on it\n");
    assert!(devices.deployment("cellar").exists());
    // A device that is unreachable stops no other.
    let output = devices.dwell(&["remove", "gone", "new", "--yes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = stderr(&output);
    assert!(stderr.contains("Connection refused") && stderr.contains("--force"), "{stderr}");
    assert_eq!(devices.names(), ["gone"]);
    let forced = devices.text(&["remove", "gone", "--yes", "--force"]);
    assert_eq!(forced, "removed device gone; the node program may still be on it\n");
    assert_eq!(devices.names(), Vec::<String>::new());
}

#[test]
fn leased_device_is_neither_checked_renamed_nor_removed() {
    let devices = Devices::new();
    devices.text(&["add", "pi4", "board"]);
    devices.text(&["add", "pi3", "cellar"]);
    let mut store = Store::open(&devices.sandbox.data()).unwrap();
    let lock = store.lock().unwrap();
    let run = begin_run(&mut store, Vec::new());
    store.lease("pi4", &run, "alice@lab").unwrap();
    let in_use = format!("in use by alice@lab, run {}, since ", run.run);
    let output = devices.dwell(&["check"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stdout(&output).contains(&format!("not checked: {in_use}")), "{output:?}");
    assert!(stdout(&output).contains("1 of 2 devices answered"), "{output:?}");
    assert!(!devices.deployment("board").exists(), "not even connected to");
    let checked = devices.json(&["check"]);
    assert_matches_schema("dwell.device-check", &checked);
    assert_eq!(checked["devices"][1]["lease"]["owner"], "alice@lab");
    for arguments in [&["edit", "pi4", "--name", "pi5"][..], &["remove", "pi4", "pi3", "--yes"]] {
        let stderr = devices.failure(arguments, 1);
        assert!(stderr.contains(&in_use), "{arguments:?}: {stderr}");
    }
    assert_eq!(devices.names(), ["pi3", "pi4"]);
    devices.text(&["edit", "pi4", "--note", "in use"]);
    assert!(devices.text(&["show", "pi4"]).contains(&in_use));
    assert!(devices.text(&["list"]).contains(&format!("alice@lab, run {}", run.run)));
    assert_eq!(devices.json(&["show", "pi4"])["lease"]["stale"], false);
    drop(lock);
    // The runner has ended without releasing the device.
    assert!(devices.text(&["list"]).contains("stale: alice@lab"));
    assert!(devices.text(&["show", "pi4"]).contains("stale: its runner has ended"));
    devices.text(&["check", "pi4"]);
    assert_eq!(devices.text(&["remove", "pi4", "--yes"]), "removed device pi4\n");
}

#[test]
fn concurrent_commands_lose_no_device_and_no_check() {
    let devices = Devices::new();
    let run = |arguments: &[&str]| {
        let mut command = devices.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all = |children: Vec<std::process::Child>| {
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    };
    let names: Vec<String> = (0..4).map(|n| format!("pi{n}")).collect();
    all(names.iter().map(|name| run(&["add", name, &format!("board-{name}")])).collect());
    let mut children: Vec<_> = names.iter().map(|name| run(&["check", name])).collect();
    let edits = [["--note", "a"], ["--price", "b"], ["--role", "c"], ["--model", "d"]];
    children.extend(edits.iter().map(|edit| run(&[&["edit", "pi0"], &edit[..]].concat())));
    all(children);
    let listed = devices.json(&["list"]);
    let listed = listed["devices"].as_array().unwrap();
    assert_eq!(devices.names(), names);
    assert!(listed.iter().all(|it| it["last_check"]["answered"] == true), "{listed:#?}");
    let device = &listed[0]["device"];
    assert_eq!(
        [&device["notes"], &device["price"], &device["role"], &device["model"]],
        ["a", "b", "c", "d"]
    );
}

#[test]
fn catalogue_of_an_older_version_gets_devices() {
    let devices = Devices::new();
    let data = devices.sandbox.data();
    fs::create_dir(&data).unwrap();
    let db = rusqlite::Connection::open(data.join("catalogue.sqlite")).unwrap();
    for version in 1..=4 {
        let path = format!("controller/store/src/migrations/{version}.sql");
        db.execute_batch(&fs::read_to_string(repository(&path)).unwrap()).unwrap();
    }
    db.execute_batch(
        "INSERT INTO runs (run, kind, name, state, started, settings, seed, axes, dwell)
         VALUES ('20261121-1', 'import', 'old', 'finished', '2026-11-21T00:00:00Z', '[]', 0, '[]', '0');
         PRAGMA user_version = 4; PRAGMA application_id = 0x64776c6c;",
    )
    .unwrap();
    drop(db);
    assert!(devices.text(&["list"]).contains("no devices in"));
    devices.text(&["add", "pi4", "board", "--check"]);
    assert!(data.join("catalogue.v4.backup.sqlite").exists());
    let runs = devices.sandbox.json(&["runs"]);
    assert_matches_schema("dwell.runs", &runs);
    assert_eq!(
        (&runs["runs"][0]["run"], &runs["runs"][0]["owner"]),
        (&json!("20261121-1"), &Value::Null)
    );
}

#[test]
fn printed_remedies_provide_the_lacking_privileges() {
    if !as_root() {
        return;
    }
    if Command::new("setcap").arg("-v").output().is_err() {
        return skip("no setcap");
    }
    let devices = Devices::new();
    // The real node: its abilities are what the remedies refer to.
    let node = devices.sandbox.path(&format!("nodes/{}/dwell-node", std::env::consts::ARCH));
    // Without debug data it is copied faster.
    let stripped = Command::new("strip").arg("-o").arg(&node).arg(DWELL).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(DWELL, &node).unwrap();
    }
    devices.let_others_in();
    devices.text(&["add", "pi4", "plain"]);
    let text = devices.text(&["check", "pi4"]);
    let lacking = |checked: &Value| {
        let lacking = checked["devices"][0]["privileges"]["lacking"].as_array().cloned();
        let of = |lack: &Value| {
            (lack["ability"].as_str().unwrap().to_owned(), lack["root_only"].as_bool().unwrap())
        };
        lacking.unwrap_or_default().iter().map(of).collect::<Vec<_>>()
    };
    let before = devices.json(&["check", "pi4"]);
    let refused = lacking(&before);
    for ability in ["real-time scheduling", "ICMP raw socket", "eBPF: load a netfilter program"] {
        assert!(refused.iter().any(|(name, _)| name == ability), "{ability}: {refused:?}");
        assert!(text.contains(ability), "{text}");
    }
    let setcap = before["devices"][0]["privileges"]["setcap"].as_str().unwrap();
    assert!(text.contains(setcap), "{text}");
    // This process is root already.
    let setcap = setcap.strip_prefix("sudo ").unwrap();
    let done = Command::new("sh").args(["-c", setcap]).output().unwrap();
    if !done.status.success() {
        return skip(&format!("no file capabilities here: {}", stderr(&done)));
    }
    let after = lacking(&devices.json(&["check", "pi4"]));
    assert!(after.iter().all(|(_, root_only)| *root_only), "{after:?}");
    assert!(after.len() < refused.len());
}

#[test]
fn printed_sudo_rule_is_accepted_by_visudo() {
    if !as_root() {
        return;
    }
    if Command::new("visudo").arg("-V").output().is_err() {
        return skip("no visudo");
    }
    let devices = Devices::new();
    devices.set_doctor(&json!({ "abilities": [
        { "name": "real-time scheduling", "available": false, "reason": "Operation not permitted" },
    ] }));
    devices.let_others_in();
    for (name, destination, user) in
        [("named", "pi@plain", "pi ALL="), ("numbered", "plain,a=#!(b)", "#65534 ALL=")]
    {
        devices.text(&["add", name, destination]);
        let checked = devices.json(&["check", name]);
        let rule = checked["devices"][0]["privileges"]["sudoers"].as_str().unwrap().to_owned();
        assert!(rule.starts_with(user), "{rule}");
        let file = devices.sandbox.write("rule", &format!("{rule}\n"));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
        let verified = Command::new("visudo").args(["-c", "-f", &file]).output().unwrap();
        assert!(verified.status.success(), "{rule}: {verified:?}");
        fs::remove_file(file).unwrap();
    }
}
