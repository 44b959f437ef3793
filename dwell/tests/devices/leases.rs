//! Two controllers and one device: one run at a time.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use crate::fixture::{stderr, wait_for_exit, wait_until};
use crate::hanging_ssh::{StandIn, interrupt};

/// A trial of eight seconds.
const PLAN: &str = "version = 1\nname = \"long\"\n[topology]\nroles = [\"sender\", \"receiver\"]\n\
    [ping]\nfrom = \"sender\"\nto = \"receiver\"\nprotocol = \"udp\"\nduration = \"8s\"\n\
    interval = \"10ms\"\n";

/// Makes a trial end long after the test, which interrupts it.
const ENDLESS_TRIAL: [&str; 2] = ["--set", "ping.duration=\"60s\""];

/// Makes a trial short.
const BRIEF_TRIAL: [&str; 2] = ["--set", "ping.duration=\"200ms\""];

struct Controllers {
    stand_in: StandIn,
    plan: String,
}

impl Controllers {
    /// Creates two data directories, `data` and `other`, with the same two devices.
    fn new() -> Self {
        let stand_in = StandIn::new();
        let plan = stand_in.plan(PLAN);
        let controllers = Self { stand_in, plan };
        for name in ["local1", "local2"] {
            controllers.stand_in.add(name, &["--address", "127.0.0.1"]);
            let arguments = ["device", "add", name, name, "--address", "127.0.0.1"];
            let mut command = controllers.stand_in.command(&arguments);
            let added = controllers.elsewhere(&mut command).output().unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        controllers
    }

    /// Makes a command use the other data directory.
    fn elsewhere<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.args(["--data", &self.stand_in.sandbox.path("other").display().to_string()])
    }

    fn run(&self, options: &[&str]) -> Command {
        let on = ["run", &self.plan, "--on", "sender=local1,receiver=local2"];
        self.stand_in.command(&[&on, options].concat())
    }

    /// Starts a command whose standard error goes to a file.
    fn start(&self, command: &mut Command, log: &str) -> Child {
        let log = File::create(self.stand_in.sandbox.path(log)).unwrap();
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.stand_in.sandbox.path(name)).unwrap()
    }

    /// Starts the first run and waits until it has the devices.
    fn start_first(&self) -> Child {
        self.start_measuring(&mut self.run(&ENDLESS_TRIAL))
    }

    /// Interrupts the first run, which did not end before.
    fn interrupt_first(&self, mut first: Child) {
        assert!(first.try_wait().unwrap().is_none(), "the first run ended: {}", self.log("first"));
        interrupt(&first);
        assert_eq!(wait_for_exit(&mut first).code(), Some(130), "{}", self.log("first"));
    }

    /// Starts this command of a run and waits until it has the devices.
    fn start_measuring(&self, command: &mut Command) -> Child {
        let first = self.start(command, "first");
        wait_until("the first run to measure", || {
            !self.stand_in.sandbox.query("SELECT 1 || '' FROM nodes").is_empty()
        });
        first
    }
}

#[test]
fn second_controller_waits_or_fails() {
    let controllers = Controllers::new();
    let first = controllers.start_first();
    let refused = controllers.elsewhere(&mut controllers.run(&["--no-wait"])).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let run = controllers.stand_in.sandbox.query("SELECT run FROM runs").remove(0);
    let text = stderr(&refused);
    assert!(text.contains("is in use by run ") && text.contains(&run), "{text}");
    let mut waiting = controllers.run(&BRIEF_TRIAL);
    let mut second = controllers.start(controllers.elsewhere(&mut waiting), "second");
    wait_until("the second run to wait", || controllers.log("second").contains("waiting until"));
    controllers.interrupt_first(first);
    assert_eq!(wait_for_exit(&mut second).code(), Some(0), "{}", controllers.log("second"));
    wait_until("every process to end", || controllers.stand_in.sandbox.processes().is_empty());
}

#[test]
fn device_in_use_is_neither_checked_nor_removed() {
    let controllers = Controllers::new();
    // The flock of BusyBox has no --version.
    let bin = controllers.stand_in.sandbox.path("homes/bin");
    let flock = bin.join("flock");
    let text = "#!/bin/sh\n[ \"$1\" = --version ] && exit 1\nexec /usr/bin/flock \"$@\"\n";
    fs::create_dir_all(&bin).unwrap();
    fs::write(&flock, text).unwrap();
    fs::set_permissions(flock, fs::Permissions::from_mode(0o700)).unwrap();
    let first = controllers.start_first();
    let run = controllers.stand_in.sandbox.query("SELECT run FROM runs").remove(0);
    for action in [&["check", "local1"][..], &["remove", "local1", "--yes"]] {
        let mut command = controllers.stand_in.command(&[&["device"], action].concat());
        let refused = controllers.elsewhere(&mut command).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let text = format!("{}{}", String::from_utf8_lossy(&refused.stdout), stderr(&refused));
        assert!(text.contains("in use by run ") && text.contains(&run), "{action:?}: {text}");
    }
    controllers.interrupt_first(first);
}

#[test]
fn second_run_of_one_data_directory_waits() {
    let controllers = Controllers::new();
    let first = controllers.start_first();
    let refused = controllers.run(&["--no-wait"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let mut second = controllers.start(&mut controllers.run(&BRIEF_TRIAL), "second");
    wait_until("the second run to wait", || controllers.log("second").contains("waiting until"));
    controllers.interrupt_first(first);
    assert_eq!(wait_for_exit(&mut second).code(), Some(0), "{}", controllers.log("second"));
    assert_eq!(
        controllers.stand_in.sandbox.query("SELECT state FROM runs"),
        ["stopped", "finished"]
    );
}

#[test]
fn resumed_run_waits_for_its_turn() {
    let controllers = Controllers::new();
    let first = controllers.start_measuring(&mut controllers.run(&[]));
    assert_resumed_run_waits(&controllers, first);
}

#[test]
fn resumed_run_with_devices_by_a_setting_waits() {
    let controllers = Controllers::new();
    let plan = controllers.stand_in.plan(&crate::runs::in_lab(PLAN));
    let controllers = Controllers { plan, ..controllers };
    let roles = ["--set", "topology={roles=[\"n1\",\"n2\"]}"];
    let on = ["--on", "n1=local1,n2=local2"];
    let run = ["run", &controllers.plan];
    let mut command = controllers.stand_in.command(&[&run[..], &roles, &on].concat());
    let first = controllers.start_measuring(&mut command);
    assert_resumed_run_waits(&controllers, first);
}

fn assert_resumed_run_waits(controllers: &Controllers, mut first: Child) {
    let resume = ["run", &controllers.plan, "--resume", "last"];
    let refused = controllers.stand_in.command(&[&resume[..], &["--no-wait"]].concat()).output();
    assert_eq!(refused.as_ref().unwrap().status.code(), Some(1), "{refused:?}");
    let mut second = controllers.start(&mut controllers.stand_in.command(&resume), "second");
    wait_until("the second run to wait", || controllers.log("second").contains("waiting until"));
    interrupt(&first);
    assert_eq!(wait_for_exit(&mut first).code(), Some(130), "{}", controllers.log("first"));
    assert_eq!(wait_for_exit(&mut second).code(), Some(0), "{}", controllers.log("second"));
    assert_eq!(controllers.stand_in.sandbox.query("SELECT state FROM runs"), ["finished"]);
}

#[test]
fn waiting_run_can_be_interrupted() {
    let controllers = Controllers::new();
    let first = controllers.start_first();
    let mut waiting = controllers.run(&[]);
    let mut second = controllers.start(controllers.elsewhere(&mut waiting), "second");
    wait_until("the second run to wait", || controllers.log("second").contains("waiting until"));
    interrupt(&second);
    assert_eq!(wait_for_exit(&mut second).code(), Some(130), "{}", controllers.log("second"));
    controllers.interrupt_first(first);
}
