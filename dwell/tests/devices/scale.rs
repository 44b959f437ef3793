//! Many devices at once, and the cost of SSH. These tests measure times, so they run one at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::hanging_ssh::StandIn;
use crate::lab_devices::DeviceLab;
use crate::runs::{PLAN, in_lab};

/// Held by each of these tests.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn fifty_devices_are_checked_and_run_a_plan() {
    const COUNT: usize = 50;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = DeviceLab::new(COUNT) else { return };
    let started = Instant::now();
    let checked = lab.json(&["device", "check"]);
    let time = started.elapsed();
    println!("{COUNT} devices were checked, and the node program copied, in {time:.1?}");
    assert_eq!(checked["answered"], COUNT, "{checked:#}");
    assert!(time < Duration::from_secs(60), "{time:?}");

    let names: Vec<_> = (1..=COUNT).map(|number| format!("\"d{number}\"")).collect();
    let plan = format!(
        "version = 1\nname = \"many\"\n[topology]\nroles = [{}]\n[ping]\nfrom = \"d2\"\nto = \"d1\"\n\
         protocol = \"udp\"\ncount = 50\ninterval = \"1ms\"\n[matrix]\nfrom = [{}]\n",
        names.join(", "),
        names[1..].join(", ")
    );
    let plan = lab.sandbox.write("many.toml", &plan);
    let on: Vec<_> = (1..=COUNT).map(|number| format!("d{number}=d{number}")).collect();
    let started = Instant::now();
    let output = lab.dwell(&["run", &plan, "--on", &on.join(",")]);
    println!("a plan ran on {COUNT} devices in {:.1?}", started.elapsed());
    assert!(output.status.success(), "{output:?}");
    let shown = lab.json(&["show", "last"]);
    let trials = shown["trials"].as_array().unwrap();
    assert_eq!(trials.len(), COUNT - 1);
    for trial in trials {
        assert_eq!(trial["packets"]["received"], 50, "{trial:#}");
    }
    lab.assert_all_idle();
}

#[test]
fn devices_that_are_down_delay_a_check_within_bounds() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let stand_in = StandIn::new();
    let mut up = 0;
    for number in 0..200 {
        // 150 are down: half of them refuse, half of them do not answer.
        let (name, host) = match number % 8 {
            0 | 1 => (format!("up{number}"), format!("local{number}")),
            2..=4 => (format!("closed{number}"), "refused".to_owned()),
            _ => (format!("silent{number}"), "silent".to_owned()),
        };
        up += usize::from(number % 8 < 2);
        let added = stand_in.command(&["device", "add", &name, &host]).output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }
    let started = Instant::now();
    let results = stand_in.check();
    println!("200 devices, {} of them down, were checked in {:.1?}", 200 - up, started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
    let of_state = |state| results.values().filter(|result| result["state"] == state).count();
    assert_eq!((of_state("answered"), of_state("failed")), (50, 150));
    assert_eq!(stand_in.sandbox.processes(), []);
}

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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
