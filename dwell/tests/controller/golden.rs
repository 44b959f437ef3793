//! Exact output for fixed input.

use crate::fixture::{Sandbox, assert_golden, repository, stdout};

#[test]
fn quick_plan_matches_the_golden_trials() {
    let sandbox = Sandbox::new();
    let plan = repository("plans/quick.toml");
    let plan = plan.to_str().unwrap();
    for (more, name) in [(&[][..], "quick.txt"), (&["--json"], "quick.json")] {
        let output = sandbox.dwell(&[&["run", plan, "--dry-run", "--seed", "7"], more].concat());
        assert!(output.status.success(), "{output:?}");
        assert_golden(name, &stdout(&output));
    }
    assert!(!sandbox.data().exists());
}

#[test]
fn sweep_matches_the_golden_order_of_its_seed() {
    let sandbox = Sandbox::new();
    let plan = repository("dwell/tests/controller/plans/sweep.toml");
    let plan = plan.to_str().unwrap();
    let output = sandbox.dwell(&["run", plan, "--dry-run", "--seed", "7"]);
    assert!(output.status.success(), "{output:?}");
    assert_golden("sweep.txt", &stdout(&output));
    let other = sandbox.dwell(&["run", plan, "--dry-run", "--seed", "8"]);
    assert_ne!(stdout(&other), stdout(&output), "another seed, another order");
    let sorted = |text: String| {
        let mut lines: Vec<_> =
            text.lines().filter_map(|line| Some(line.split_once("trial ")?.1.to_owned())).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(stdout(&other)), sorted(stdout(&output)), "the same trials in another order");
}

#[test]
fn shown_import_matches_the_golden_text() {
    let sandbox = Sandbox::new();
    let file = repository("controller/import/tests/data/roedlach-vock.csv");
    let run = sandbox.json(&["import", file.to_str().unwrap()])["run"].as_str().unwrap().to_owned();
    let output = sandbox.dwell(&["show", "last"]);
    assert!(output.status.success(), "{output:?}");
    let shown = stdout(&output);
    let (first, rest) = shown.split_once('\n').unwrap();
    // Only these vary between runs.
    let stamp = first.rsplit("  ").next().unwrap();
    assert!(stamp.ends_with('Z') && stamp.len() == 20, "{first}");
    let first = first.replace(&run, "RUN").replace(stamp, "STARTED");
    assert_golden("show-roedlach-vock.txt", &format!("{first}\n{}", rest.replace(&run, "RUN")));
}
