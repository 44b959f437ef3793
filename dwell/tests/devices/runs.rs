//! Plans whose roles are bound to devices.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::fixture::{Sandbox, stderr};
use crate::hanging_ssh::StandIn;
use crate::lab_devices::DeviceLab;

/// A ping between two roles.
pub(crate) const PLAN: &str = "version = 1\nname = \"two\"\n[topology]\n\
    roles = [\"sender\", \"receiver\"]\n[ping]\nfrom = \"sender\"\nto = \"receiver\"\n\
    protocol = \"udp\"\ncount = 200\ninterval = \"1ms\"\n[trials]\nrepetitions = 3\n";

/// Returns the same plan in a lab.
pub(crate) fn in_lab(plan: &str) -> String {
    let plan = plan.replace("roles = [\"sender\", \"receiver\"]", "lab = \"line:2\"");
    plan.replace("\"sender\"", "\"n1\"").replace("\"receiver\"", "\"n2\"")
}

/// Returns the names in an object.
fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn run_on_devices_has_the_results_of_a_lab() {
    let Some(lab) = DeviceLab::new(2) else { return };
    let plan = lab.sandbox.write("two.toml", PLAN);
    let output = lab.dwell(&["run", &plan, "--on", "sender=d1,receiver=d2"]);
    assert!(output.status.success(), "{output:?}");
    let shown = lab.json(&["show", "last"]);
    let plan = lab.sandbox.write("lab.toml", &in_lab(PLAN));
    assert!(lab.sandbox.dwell(&["run", &plan]).status.success());
    let expected = lab.sandbox.json(&["show", "last"]);
    let (trials, expected) = (&shown["trials"], &expected["trials"]);
    assert_eq!(trials.as_array().unwrap().len(), 3);
    for trial in trials.as_array().unwrap() {
        assert_eq!(trial["state"], "finished", "{trial:#}");
        assert_eq!(trial["packets"]["received"], 200, "{trial:#}");
        assert_eq!(keys(&trial["metrics"]), keys(&expected[0]["metrics"]));
        let (values, mut of_lab) = (keys(&trial["values"]), keys(&expected[0]["values"]));
        // A percentile has no interval if neighbouring samples depend on each other too much.
        of_lab.retain(|name| !name.ends_with("_low_ns") && !name.ends_with("_high_ns"));
        assert!(values.is_superset(&of_lab), "{values:?} {of_lab:?}");
    }
    lab.assert_all_idle();
}

#[test]
fn replay_runs_on_devices_and_judges_the_claims() {
    let Some(lab) = DeviceLab::new(2) else { return };
    let short = ["--set", "stop.time=200ms", "--set", "trials.seed=7", "--quiet"];
    let command = ["replay", "round-trip", "--short", "--on", "n1=d1,n2=d2"];
    let replayed = lab.json(&[&command[..], &short].concat());
    let case = &replayed["cases"][0];
    assert_eq!(case["reason"], Value::Null, "{case:#}");
    assert_eq!(case["claims"].as_array().unwrap().len(), 7);
    let shown = lab.json(&["show", case["run"].as_str().unwrap()]);
    let finished = |trial: &&Value| trial["state"] == "finished";
    let trial = shown["trials"].as_array().unwrap().iter().find(finished).unwrap();
    let [sent, received] = ["sent", "received"].map(|of| trial["packets"][of].as_u64().unwrap());
    assert!(sent >= 3_000 && received == sent, "{trial:#}");
    lab.assert_all_idle();
}

#[test]
fn several_roles_are_bound_by_repeated_options() {
    let stand_in = StandIn::new();
    for name in ["local1", "local2"] {
        stand_in.add(name, &["--address", "127.0.0.1"]);
    }
    let plan = stand_in.plan(PLAN);
    let on = ["--on", "receiver=local1", "--on", "sender=local2"];
    let output = stand_in.command(&[&["run", &plan][..], &on].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stand_in.sandbox.query("SELECT state FROM trials"), ["finished"; 3]);
}

#[test]
fn one_machine_under_two_names_is_refused() {
    let stand_in = StandIn::new();
    stand_in.add("local", &["--address", "127.0.0.1"]);
    let twin = ["device", "add", "twin", "local", "--address", "127.0.0.1"];
    assert!(stand_in.command(&twin).output().unwrap().status.success());
    let plan = stand_in.plan(PLAN);
    let on = ["--on", "sender=local,receiver=twin"];
    let output = stand_in.command(&[&["run", &plan][..], &on].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("same machine as another device"), "{output:?}");
}

#[test]
fn wrong_bindings_are_usage_errors_without_a_trace() {
    let sandbox = Sandbox::new();
    let plan = sandbox.write("plan.toml", PLAN);
    let lab = sandbox.write("lab.toml", &in_lab(PLAN));
    for (plan, on, text) in [
        (&plan, &[][..], "add --on sender=DEVICE,receiver=DEVICE"),
        (&plan, &["--on", "sender=pi4"], "no devices"),
        (&plan, &["--on", "moon=pi4"], "no role 'moon'; it has sender, receiver"),
        (&plan, &["--on", "sender"], "use ROLE=DEVICE"),
        (&lab, &["--on", "sender=pi4"], "runs in a lab"),
    ] {
        let output = sandbox.dwell(&[&["run", plan], on].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(text), "{text}: {output:?}");
    }
    assert!(!sandbox.data().exists());
}
