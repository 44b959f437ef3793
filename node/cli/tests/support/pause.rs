//! Holding a process up for a while.

use std::fs;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Stops the process; when this returns, none of its threads runs.
pub(crate) fn pause(child: &Child) {
    kill(child, "-STOP");
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let tasks = || fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().map(Result::unwrap);
    let start = Instant::now();
    while !tasks().all(is_stopped) {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not stop");
        sleep(Duration::from_millis(1));
    }
}

/// Lets it go on.
pub(crate) fn go_on(child: &Child) {
    kill(child, "-CONT");
}

fn kill(child: &Child, how: &str) {
    let status = Command::new("kill").args([how, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}
