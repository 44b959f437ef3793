//! Stops and continues a process.

use std::fs;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Stops the process and waits until all of its threads have stopped.
pub(crate) fn pause(child: &Child) {
    kill(child, "-STOP");
    let is_stopped = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let tasks = || fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().map(Result::unwrap);
    let start = Instant::now();
    while !tasks().all(is_stopped) {
        assert!(start.elapsed() < Duration::from_secs(60), "the process does not stop");
        sleep(Duration::from_millis(1));
    }
}

/// Continues the process.
pub(crate) fn resume(child: &Child) {
    kill(child, "-CONT");
}

fn kill(child: &Child, how: &str) {
    let status = Command::new("kill").args([how, &child.id().to_string()]).status();
    assert!(status.unwrap().success());
}
