//! Exact output for fixed input.

use crate::fixture::{Sandbox, assert_golden, printed, repository};

#[test]
fn quick_plan_matches_the_golden_trials() {
    let place = Sandbox::new();
    let plan = repository("plans/quick.toml");
    let plan = plan.to_str().unwrap();
    for (more, name) in [(&[][..], "quick.txt"), (&["--json"], "quick.json")] {
        let output = place.dwell(&[&["run", plan, "--dry-run", "--seed", "7"], more].concat());
        assert!(output.status.success(), "{output:?}");
        assert_golden(name, &printed(&output));
    }
    assert!(!place.data().exists());
}

#[test]
fn sweep_matches_the_golden_order_of_its_seed() {
    let place = Sandbox::new();
    let plan = repository("dwell/tests/controller/plans/sweep.toml");
    let plan = plan.to_str().unwrap();
    let output = place.dwell(&["run", plan, "--dry-run", "--seed", "7"]);
    assert!(output.status.success(), "{output:?}");
    assert_golden("sweep.txt", &printed(&output));
    let other = place.dwell(&["run", plan, "--dry-run", "--seed", "8"]);
    assert_ne!(printed(&other), printed(&output), "another seed, another order");
    let sorted = |text: String| {
        let mut lines: Vec<_> =
            text.lines().filter_map(|line| Some(line.split_once("trial ")?.1.to_owned())).collect();
        lines.sort();
        lines
    };
    assert_eq!(
        sorted(printed(&other)),
        sorted(printed(&output)),
        "the same trials in another order"
    );
}

#[test]
fn shown_import_matches_the_golden_text() {
    let place = Sandbox::new();
    let file = repository("controller/import/tests/data/s4.csv");
    let run = place.json(&["import", file.to_str().unwrap()])["run"].as_str().unwrap().to_owned();
    let output = place.dwell(&["show", "last"]);
    assert!(output.status.success(), "{output:?}");
    let shown = printed(&output);
    let (first, rest) = shown.split_once('\n').unwrap();
    // Only these vary between runs.
    let stamp = first.rsplit("  ").next().unwrap();
    assert!(stamp.ends_with('Z') && stamp.len() == 20, "{first}");
    let first = first.replace(&run, "RUN").replace(stamp, "STARTED");
    assert_golden("show-s4.txt", &format!("{first}\n{}", rest.replace(&run, "RUN")));
}
