//! A plan whose far node is a microcontroller.

use std::process::Output;

use crate::fixture::{Sandbox, as_root, repository, skip, stderr};

/// Runs plans/cortex-m3.toml with few probes.
fn run(sandbox: &Sandbox) -> Output {
    let set =
        ["--set", "ping.count=100", "--set", "trials.repetitions=1", "--set", "ping.timeout=10s"];
    let arguments = [&["run", "plans/cortex-m3.toml", "--quiet"], &set[..]].concat();
    sandbox.command(&arguments).current_dir(repository(".")).output().unwrap()
}

#[test]
fn plan_measures_a_microcontroller_with_every_protocol() {
    if !as_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let output = run(&sandbox);
    let said = stderr(&output);
    if said.contains("make firmware") || said.contains("install qemu-system-arm") {
        return skip("needs the firmware and QEMU: make firmware");
    }
    assert!(output.status.success(), "{output:?}");
    let name = sandbox.query("SELECT run FROM runs").remove(0);
    let shown = sandbox.json(&["show", &name]);
    let trials = shown["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 4, "{shown}");
    for trial in trials {
        assert_eq!(trial["state"], "finished", "{trial}");
        assert_eq!(trial["packets"]["received"], 100, "{trial}");
        let is_stamp = trial["parameters"].to_string().contains("stamp");
        assert_eq!(trial["values"].get("clock_far_offset_ns").is_some(), is_stamp, "{trial}");
    }
    sandbox.assert_no_leftovers();
}
