//! Plans with a lab file.

use std::fs;

use dwell_io::process::{Handle, Signal};

use crate::fixture::{Sandbox, as_root, stderr, stdout, wait_for_exit, wait_until};

const LAB: &str = "version = 1\nnodes = [\"robot\", \"base\"]\n\
    [[links]]\na = \"robot\"\nb = \"base\"\nrate = \"100Mbit/s\"\n";

fn plan(sandbox: &Sandbox, to: &str) -> (String, String) {
    let lab = sandbox.write("lab.toml", LAB);
    let text = format!(
        "version = 1\nname = \"own\"\ntopology = {{ lab = \"{lab}\" }}\n[ping]\nfrom = \"robot\"\n\
         to = \"{to}\"\nprotocol = \"udp\"\nduration = \"200ms\"\ninterval = \"2ms\"\n\
         [trials]\nrepetitions = 3\n"
    );
    (sandbox.write("own.toml", &text), lab)
}

#[test]
fn missing_lab_file_or_node_is_a_plan_error() {
    let sandbox = Sandbox::new();
    let (own, lab) = plan(&sandbox, "moon");
    for more in [&[][..], &["--dry-run"]] {
        let output = sandbox.dwell(&[&["run", &own], more].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let stderr = stderr(&output);
        assert!(stderr.contains("line 6") && stderr.contains("there are robot, base"), "{stderr}");
    }
    fs::remove_file(&lab).unwrap();
    let output = sandbox.dwell(&["run", &own, "--dry-run"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("line 3") && stderr(&output).contains(&lab), "{output:?}");
    assert!(!sandbox.data().exists());
}

#[test]
fn run_is_not_resumed_on_a_changed_lab() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let (own, lab) = plan(&sandbox, "base");
    let mut runner = sandbox.start(&mut sandbox.command(&["run", &own, "--quiet"]));
    let measured = "SELECT number FROM trials WHERE state = 'finished'";
    wait_until("a trial is finished", || {
        !sandbox.query(measured).is_empty() || !sandbox.workers().is_empty()
    });
    Handle::open(runner.id()).unwrap().signal(Signal::Interrupt).unwrap();
    assert_eq!(wait_for_exit(&mut runner).code(), Some(130), "{}", sandbox.stderr());
    let run = sandbox.query("SELECT run FROM runs").remove(0);
    let kept = sandbox.query("SELECT lab_files FROM runs").remove(0);
    assert!(kept.contains("100Mbit/s"), "{kept}");

    fs::write(&lab, LAB.replace("100Mbit/s", "1Mbit/s")).unwrap();
    let output = sandbox.dwell(&["run", &own, "--resume", &run]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("another lab"), "{output:?}");
    let output = sandbox.dwell(&["run", &own, "--resume", "last", "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        !stdout(&output).contains(&format!("run {run}:")),
        "must start another run: {output:?}"
    );

    fs::write(&lab, LAB).unwrap();
    let output = sandbox.dwell(&["run", &own, "--resume", "last", "--quiet"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains(&format!("run {run}: complete; 3 of 3")), "{output:?}");
    sandbox.assert_no_leftovers();
}
