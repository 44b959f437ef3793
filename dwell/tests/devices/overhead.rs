//! The time that a trial over SSH takes longer than in a lab.

use std::time::Instant;

use crate::lab_devices::DeviceLab;
use crate::runs::{PLAN, in_lab};

/// Returns the time of one trial in seconds: the slope between a short and a long run, which both have
/// the same connections.
fn time_per_trial(run: &dyn Fn(u32)) -> f64 {
    const REPETITIONS: [u32; 2] = [2, 22];
    let [short, long] = REPETITIONS.map(|repetitions| {
        let started = Instant::now();
        run(repetitions);
        started.elapsed().as_secs_f64()
    });
    (long - short) / f64::from(REPETITIONS[1] - REPETITIONS[0])
}

#[test]
fn trial_over_ssh_takes_little_longer_than_in_a_lab() {
    /// Added time of a trial in seconds. The aim is 0.05 on an idle machine.
    const MAX_ADDED: f64 = 0.05;
    let Some(lab) = DeviceLab::new(2) else { return };
    let plan = |name: &str, repetitions: u32, is_in_lab: bool| {
        let text = PLAN.replace("repetitions = 3", &format!("repetitions = {repetitions}"));
        let text = text.replace("count = 200", "count = 50");
        let text = if is_in_lab { in_lab(&text) } else { text };
        lab.sandbox.write(name, &text)
    };
    let mut added: Vec<f64> = (0..3)
        .map(|_| {
            let over_ssh = time_per_trial(&|repetitions| {
                let plan = plan("ssh.toml", repetitions, false);
                let output = lab.dwell(&["run", &plan, "--on", "sender=d1,receiver=d2", "-q"]);
                assert!(output.status.success(), "{output:?}");
            });
            let in_lab = time_per_trial(&|repetitions| {
                let output = lab.dwell(&["run", &plan("lab.toml", repetitions, true), "-q"]);
                assert!(output.status.success(), "{output:?}");
            });
            over_ssh - in_lab
        })
        .collect();
    added.sort_by(f64::total_cmp);
    println!("added seconds per trial over SSH, 3 pairs of 20 trials: {added:.4?}");
    assert!(added[1] < MAX_ADDED, "{added:?}");
}
