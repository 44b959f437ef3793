//! What a node is found to measure: no more than a limit lets through, and no more under load than
//! without it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use dwell_host::CpuTimes;
use serde_json::Value;

use crate::fixture::{Place, as_root, skip};

/// One test's load is not for the other test's sender. Both senders have real-time priority, so that what else this
/// machine does does not reach them.
static MACHINE: Mutex<()> = Mutex::new(());

const MBIT: u64 = 1_000_000;

/// Trains so short that most of them meet no stall of a busy host, 2.4 ms at the longest, and so
/// many that a third of them may meet one and the median is known all the same.
const TRAINS: &str = "count = 21\nrepeat = 60\npause = \"3ms\"\n";

/// Both limits and loads are found by the rate; gaps of 100 us are off by a tenth on a machine that does
/// anything else.
const ACCURATE: &str = "[accurate]\ngap = \"50%\"\n";

/// Runs of each test at least, all of which are judged: what must never be is asked of each. What a machine can do is
/// asked of the best, for while its host takes its processors away it measures nothing, and its verdict says so.
const RUNS: usize = 4;

/// Runs in which the best has to be found.
const MOST: usize = 12;

/// Of the time in which this machine had something to do, what its host may take from it: beyond that, nothing is known of
/// what it can do.
const TAKEN: f64 = 0.1;

/// Runs until `run` has seen what the machine can do. Else the test fails, or is skipped where the host shows why.
fn until_seen(mut run: impl FnMut(usize) -> bool) {
    let mut taken = Vec::new();
    let mut seen = false;
    for n in 0..MOST {
        let before = processors();
        seen |= run(n);
        let after = processors();
        taken.push((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64);
        if seen && n + 1 >= RUNS {
            return;
        }
    }
    println!("of its busy time the host took {taken:.2?}");
    let least = taken.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > TAKEN, "in none of {MOST} runs this machine did what it can");
    skip(&format!("the host took at least {:.0} % of the time of processors", least * 100.0));
}

/// The time that the host took since this machine began, and all in which this machine had something to do; in ticks.
fn processors() -> (u64, u64) {
    let cpus = dwell_host::stat(&fs::read_to_string("/proc/stat").unwrap()).cpus;
    let sum = |of: fn(&CpuTimes) -> u64| cpus.iter().map(of).sum();
    (sum(|cpu| cpu.stolen), sum(|cpu| cpu.stolen + cpu.busy))
}

/// The size and the verdict of every sender of a run, in bit/s.
fn verdicts(place: &Place, plan: &str) -> Vec<(u64, Option<u64>)> {
    let output = place.dwell(&["run", plan, "--quiet", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let shown = place.json(&["show", "last"]);
    let of = |verdict: &Value| {
        println!("{verdict}");
        (verdict["ip_size"].as_u64().unwrap(), verdict["largest_rate_bps"].as_u64())
    };
    shown["verdicts"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn behind_a_limit_of_200_mbit_no_size_is_found_to_measure_more() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let plan = place.write(
        "limit.toml",
        &format!(
            "version = 1\nname = \"limit\"\n\
             [topology]\nlab = \"line:2\"\nlink = {{ rate = \"200Mbit/s\", mechanism = \"tbf\" }}\n\
             [pace]\nfrom = \"n1\"\nto = \"n2\"\nengine = \"sleep-spin\"\nscheduling = \"fifo\"\n{TRAINS}\
             [matrix]\nsize = [\"200B\", \"576B\", \"1500B\"]\n\
             rate = [\"100Mbit/s\", \"200Mbit/s\", \"500Mbit/s\"]\n{ACCURATE}"
        ),
    );
    let mut best = [None; 3];
    until_seen(|_| {
        let found = verdicts(&place, &plan);
        let sizes: Vec<u64> = found.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [200, 576, 1_500]);
        assert!(found.iter().all(|(_, rate)| *rate <= Some(200 * MBIT)), "{found:?}");
        for (best, (_, rate)) in best.iter_mut().zip(found) {
            *best = rate.max(*best);
        }
        // The limit or, as a limit counts whole frames, the step below it.
        best.iter().all(|rate| *rate >= Some(100 * MBIT))
    });
    place.assert_nothing_is_left();
}

/// A load that ends with its test.
struct Burner(Child);

impl Burner {
    /// Has the sender's CPU for a millisecond, ahead of a sender at real-time priority too, and leaves it for
    /// another, again and again; `None` where that priority is refused. Unlike `dwell load cpu` it does not
    /// catch up what it did not get, and leaves the sender its half of a CPU of which the host takes most.
    fn start() -> Option<Self> {
        const BURN: &str = "import time\n\
            print('burning', flush=True)\n\
            while True:\n  \
              until = time.thread_time() + 0.001\n  \
              while time.thread_time() < until: pass\n  \
              time.sleep(0.001)\n";
        let mut command = Command::new("chrt");
        command.args(["--fifo", "50", "taskset", "-c", CPU, "python3", "-c", BURN]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut burner = Self(command.spawn().ok()?);
        let mut line = String::new();
        BufReader::new(burner.0.stdout.take()?).read_line(&mut line).unwrap();
        line.contains("burning").then_some(burner)
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the sender is.
const CPU: &str = "0";

/// What reaches the sender has to come at a higher priority. A train of 1500 B at 100 Mbit/s takes 2.4 ms, so
/// that all trains, wherever they begin, are held up for more than the twentieth of that by which their
/// rate may be off.
#[test]
fn a_loaded_machine_is_found_to_measure_less_and_never_more() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let plan = place.write(
        "load.toml",
        &format!(
            "version = 1\nname = \"load\"\n[topology]\nlab = \"line:2\"\n[nodes.n1]\ncpu = {CPU}\n\
             [pace]\nfrom = \"n1\"\nto = \"n2\"\nengine = \"sleep-spin\"\nsize = \"1500B\"\n\
             scheduling = \"fifo\"\n{TRAINS}\
             [matrix]\nrate = [\"100Mbit/s\", \"200Mbit/s\", \"1Gbit/s\"]\n{ACCURATE}"
        ),
    );
    let Some(burner) = Burner::start() else {
        return skip("no load ahead of real-time threads is allowed here");
    };
    drop(burner);
    until_seen(|n| {
        let measure = |loaded: bool| {
            let _burner = loaded.then(|| Burner::start().unwrap());
            let found = verdicts(&place, &plan);
            assert_eq!(found.len(), 1, "{found:?}");
            // No verdict is below every rate, and none of the rates is no more than that.
            let rate = found[0].1.unwrap_or(0);
            assert!(!loaded || rate < 100 * MBIT, "under load it is found to measure {rate} bit/s");
            rate
        };
        // Each comes first in turn.
        let first = measure(n % 2 == 0);
        let second = measure(n % 2 != 0);
        first.max(second) >= 100 * MBIT
    });
    place.assert_nothing_is_left();
}
