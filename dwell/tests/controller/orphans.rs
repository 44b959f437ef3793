//! A runner that is killed while one of its commands is still running. The command outlives the
//! runner and must neither delay nor disturb the next one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crate::fixture::{DWELL, Sandbox, as_root, ended, skip, until};

/// Returns the command line of a process; empty if it has ended.
fn command_line(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the parenthesis may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a `dwell lab up` is running for this data directory.
fn makes_a_lab(place: &Sandbox) -> bool {
    place.processes().iter().any(|(_, line)| line.contains("lab up"))
}

fn kill(runner: &mut Child) {
    runner.kill().unwrap();
    runner.wait().unwrap();
}

fn resume(place: &Sandbox, plan: &str) -> Child {
    place.start(&mut place.command(&["run", plan, "--quiet", "--resume", "last"]))
}

#[test]
fn runner_resumes_while_a_child_of_the_dead_one_waits_for_exec() {
    if !as_root() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let place = Sandbox::new();
    let plan = place.plan(3);
    // Delays every exec by 3 s. With -D the child started here is the runner itself.
    let mut runner = Command::new("strace");
    runner.args([
        "-D",
        "-f",
        "-q",
        "-e",
        "trace=execve",
        "-e",
        "inject=execve:delay_enter=3000000",
    ]);
    runner.arg("-o").arg(place.path("trace")).args([DWELL, "run", &plan, "--quiet"]);
    let mut runner = place.start(runner.env("DWELL_DATA", place.data()));
    let (id, own) = (runner.id(), |pid| command_line(pid));
    let mut forked = None;
    until("a child is forked and has not called exec", || {
        let processes = place.processes();
        let is_child = |pid: &u32| parent(*pid) == Some(id) && own(*pid) == own(id);
        forked = processes.iter().map(|(pid, _)| *pid).find(is_child);
        forked.is_some() && !place.query("SELECT lab FROM runs WHERE lab IS NOT NULL").is_empty()
    });
    let (forked, line) = (forked.unwrap(), own(id));
    kill(&mut runner);
    assert_eq!(own(forked), line, "the child outlives the runner and waits for exec");
    let mut resumed = resume(&place, &plan);
    until("the resumed runner measures", || {
        if let Some(status) = resumed.try_wait().unwrap() {
            assert!(status.success(), "{status}: {}", place.said());
        }
        place.states("last").iter().any(|state| state != "planned")
    });
    assert!(ended(&mut resumed).success(), "{}", place.said());
    assert_eq!(place.states("last"), ["finished"; 3]);
    place.assert_no_leftovers();
}

#[test]
fn runner_resumes_while_lab_up_of_the_dead_one_is_not_listed() {
    if !as_root() {
        return;
    }
    let place = Sandbox::new();
    let plan = place.plan(3);
    // `lab up` asks for the version of `ip` after creating the lab's directory and before
    // describing it.
    let hold = place.write("hold", "");
    let ip = place.write(
        "ip",
        "#!/bin/sh\nPATH=${PATH#*:}:/usr/sbin:/sbin\n\
         while [ \"$1\" = -V ] && [ -e $HOLD ]; do sleep 0.01; done\nexec ip \"$@\"\n",
    );
    fs::set_permissions(&ip, fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", place.path("").display(), std::env::var("PATH").unwrap());
    let path = path.replace("/:", ":");
    let start = |more: &[&str]| {
        let mut command = place.command(&[&["run", &plan, "--quiet"], more].concat());
        place.start(command.env("PATH", &path).env("HOLD", &hold))
    };
    let mut runner = start(&[]);
    until("the lab has a directory", || {
        let lab = place.query("SELECT lab FROM runs");
        lab.first().is_some_and(|lab| Path::new("/run/dwell/labs").join(lab).exists())
    });
    kill(&mut runner);
    let mut resumed = start(&["--resume", "last"]);
    until("the resumed runner waits for the lab, or has given up", || {
        let down = place.processes().iter().any(|(_, line)| line.contains("lab down"));
        down || resumed.try_wait().unwrap().is_some()
    });
    fs::remove_file(hold).unwrap();
    assert!(ended(&mut resumed).success(), "{}", place.said());
    assert_eq!(place.states("last"), ["finished"; 3]);
    place.assert_no_leftovers();
}

#[test]
fn runner_resumes_at_any_moment_of_lab_up_of_the_dead_one() {
    if !as_root() {
        return;
    }
    for after in [0, 10, 30, 100, 300] {
        let place = Sandbox::new();
        let plan = place.plan(3);
        // A large lab takes long to create.
        let text = fs::read_to_string(&plan).unwrap();
        fs::write(&plan, text.replace("line:2", "line:30")).unwrap();
        let mut runner = place.start(&mut place.command(&["run", &plan, "--quiet"]));
        until("the runner makes its lab", || makes_a_lab(&place));
        thread::sleep(Duration::from_millis(after));
        kill(&mut runner);
        let mut resumed = resume(&place, &plan);
        assert!(ended(&mut resumed).success(), "after {after} ms: {}", place.said());
        assert_eq!(place.states("last"), ["finished"; 3]);
        place.assert_no_leftovers();
    }
}
