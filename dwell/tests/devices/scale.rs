//! Many devices at once, and the cost of SSH. These tests measure times, so they run one at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// Returns the times between the first packets of successive trials of the last run, in seconds. A pause
/// of this machine changes few of them.
fn periods(lab: &DeviceLab) -> Vec<f64> {
    let starts = lab.sandbox.query(
        "SELECT first_ns || '' FROM trials WHERE run_id = (SELECT max(id) FROM runs) ORDER BY position",
    );
    let starts: Vec<i64> = starts.iter().map(|start| start.parse().unwrap()).collect();
    starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect()
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

#[test]
fn trial_over_ssh_takes_little_longer_than_in_a_lab() {
    /// Added time of a trial in seconds.
    const MAX_ADDED: f64 = 0.05;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(lab) = DeviceLab::new(2) else { return };
    let text =
        PLAN.replace("repetitions = 3", "repetitions = 30").replace("count = 200", "count = 50");
    let over_ssh = lab.sandbox.write("ssh.toml", &text);
    let local = lab.sandbox.write("lab.toml", &in_lab(&text));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..2 {
        let runs = [(&over_ssh, &["--on", "sender=d1,receiver=d2"][..]), (&local, &[])];
        for (times, (plan, on)) in times.iter_mut().zip(runs) {
            let output = lab.dwell(&[&["run", plan, "-q"], on].concat());
            assert!(output.status.success(), "{output:?}");
            times.extend(periods(&lab));
        }
    }
    let [over_ssh, local] = times.each_mut().map(|times| median(times));
    let added = over_ssh - local;
    println!("a trial takes {over_ssh:.4} s over SSH and {local:.4} s in a lab: {added:.4} s more");
    assert!(added < MAX_ADDED, "{added}");
}
