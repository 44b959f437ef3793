//! A runner that is killed while one of its commands is still running. The command outlives the
//! runner and must neither delay nor disturb the next one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crate::fixture::{DWELL, Sandbox, as_root, skip, wait_for_exit, wait_until};

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
fn is_creating_a_lab(sandbox: &Sandbox) -> bool {
    sandbox.processes().iter().any(|(_, line)| line.contains("lab up"))
}

fn kill(runner: &mut Child) {
    runner.kill().unwrap();
    runner.wait().unwrap();
}

fn resume(sandbox: &Sandbox, plan: &str) -> Child {
    sandbox.start(&mut sandbox.command(&["run", plan, "--quiet", "--resume", "last"]))
}

#[test]
fn runner_resumes_while_an_orphan_waits_for_exec() {
    if !as_root() {
        return;
    }
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("needs strace");
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
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
    runner.arg("-o").arg(sandbox.path("trace")).args([DWELL, "run", &plan, "--quiet"]);
    let mut runner = sandbox.start(runner.env("DWELL_DATA", sandbox.data()));
    let (id, own) = (runner.id(), |pid| command_line(pid));
    let mut forked = None;
    wait_until("a child is forked and has not called exec", || {
        let processes = sandbox.processes();
        let is_child = |pid: &u32| parent(*pid) == Some(id) && own(*pid) == own(id);
        forked = processes.iter().map(|(pid, _)| *pid).find(is_child);
        forked.is_some() && !sandbox.query("SELECT run FROM runs").is_empty()
    });
    let (forked, line) = (forked.unwrap(), own(id));
    kill(&mut runner);
    assert_eq!(own(forked), line, "the child outlives the runner and waits for exec");
    let mut resumed = resume(&sandbox, &plan);
    wait_until("the resumed runner measures", || {
        if let Some(status) = resumed.try_wait().unwrap() {
            assert!(status.success(), "{status}: {}", sandbox.stderr());
        }
        sandbox.states("last").iter().any(|state| state != "planned")
    });
    assert!(wait_for_exit(&mut resumed).success(), "{}", sandbox.stderr());
    assert_eq!(sandbox.states("last"), ["finished"; 3]);
    sandbox.assert_no_leftovers();
}

#[test]
fn runner_resumes_while_an_orphaned_lab_up_is_unlisted() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(3);
    // `lab up` asks for the version of `ip` after creating the lab's directory and before
    // describing it.
    let hold = sandbox.write("hold", "");
    let ip = sandbox.write(
        "ip",
        "#!/bin/sh\nPATH=${PATH#*:}:/usr/sbin:/sbin\n\
         while [ \"$1\" = -V ] && [ -e $HOLD ]; do sleep 0.01; done\nexec ip \"$@\"\n",
    );
    fs::set_permissions(&ip, fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:{}", sandbox.path("").display(), std::env::var("PATH").unwrap());
    let path = path.replace("/:", ":");
    let start = |more: &[&str]| {
        let mut command = sandbox.command(&[&["run", &plan, "--quiet"], more].concat());
        sandbox.start(command.env("PATH", &path).env("HOLD", &hold))
    };
    let mut runner = start(&[]);
    wait_until("the lab has a directory", || {
        let lab = sandbox.labs();
        lab.first().is_some_and(|lab| Path::new("/run/dwell/labs").join(lab).exists())
    });
    kill(&mut runner);
    let mut resumed = start(&["--resume", "last"]);
    wait_until("the resumed runner waits for the lab, or has given up", || {
        let down = sandbox.processes().iter().any(|(_, line)| line.contains("lab down"));
        down || resumed.try_wait().unwrap().is_some()
    });
    fs::remove_file(hold).unwrap();
    assert!(wait_for_exit(&mut resumed).success(), "{}", sandbox.stderr());
    assert_eq!(sandbox.states("last"), ["finished"; 3]);
    sandbox.assert_no_leftovers();
}

#[test]
fn runner_resumes_at_any_moment_of_an_orphaned_lab_up() {
    if !as_root() {
        return;
    }
    for after in [0, 10, 30, 100, 300] {
        let sandbox = Sandbox::new();
        let plan = sandbox.plan(3);
        // A large lab takes long to create.
        let text = fs::read_to_string(&plan).unwrap();
        fs::write(&plan, text.replace("line:2", "line:30")).unwrap();
        let mut runner = sandbox.start(&mut sandbox.command(&["run", &plan, "--quiet"]));
        wait_until("the runner makes its lab", || is_creating_a_lab(&sandbox));
        thread::sleep(Duration::from_millis(after));
        kill(&mut runner);
        let mut resumed = resume(&sandbox, &plan);
        assert!(wait_for_exit(&mut resumed).success(), "after {after} ms: {}", sandbox.stderr());
        assert_eq!(sandbox.states("last"), ["finished"; 3]);
        sandbox.assert_no_leftovers();
    }
}
