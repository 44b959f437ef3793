//! Rates that a sender is found to keep: not more than a limit allows, and not more under load than
//! without.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use dwell_host::CpuTimes;
use serde_json::Value;

use crate::fixture::{Sandbox, as_root, skip};

/// Serialises the tests, because the load of one would disturb the other's sender. Both senders
/// have real-time priority, so that other processes do not disturb them.
static MACHINE_LOCK: Mutex<()> = Mutex::new(());

const MBIT: u64 = 1_000_000;

/// Trains short enough that most meet no stall of a busy host (2.4 ms at the longest), and numerous
/// enough that the median is known even if a third of them does.
const TRAINS: &str = "count = 21\nrepeat = 60\npause = \"3ms\"\n";

/// Limits and loads are recognised by the rate. Gaps of 100 us are off by a tenth on any machine
/// that is not idle.
const ACCURATE: &str = "[accurate]\ngap = \"50%\"\n";

/// Minimum number of runs per test. Upper limits must hold in each of them. What the machine can do
/// is taken from the best run, because a run during which the host takes its CPUs away measures
/// nothing, and its verdict says so.
const MIN_RUNS: usize = 4;

/// Maximum number of runs until the best one is found.
const MAX_RUNS: usize = 12;

/// Maximum share of the busy CPU time that the host may steal; beyond it, the machine's abilities
/// are unknown.
const MAX_STOLEN_RATIO: f64 = 0.1;

/// Repeats `run` until it has seen what the machine can do. Otherwise the test fails, or is skipped
/// if the host stole too much CPU time.
fn repeat_until_reached(mut run: impl FnMut(usize) -> bool) {
    let mut taken = Vec::new();
    let mut seen = false;
    for n in 0..MAX_RUNS {
        let before = processors();
        seen |= run(n);
        let after = processors();
        taken.push((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64);
        if seen && n + 1 >= MIN_RUNS {
            return;
        }
    }
    println!("share of busy CPU time stolen by the host: {taken:.2?}");
    let least = taken.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > MAX_STOLEN_RATIO, "the machine reached its rate in none of {MAX_RUNS} runs");
    skip(&format!("the host stole at least {:.0} % of the CPU time", least * 100.0));
}

/// Returns stolen and busy CPU time since boot, in ticks; busy time includes stolen time.
fn processors() -> (u64, u64) {
    let cpus = dwell_host::stat(&fs::read_to_string("/proc/stat").unwrap()).cpus;
    let sum = |of: fn(&CpuTimes) -> u64| cpus.iter().map(of).sum();
    (sum(|cpu| cpu.stolen), sum(|cpu| cpu.stolen + cpu.busy))
}

/// Returns packet size and largest rate in bit/s of every sender of a run.
fn verdicts(place: &Sandbox, plan: &str) -> Vec<(u64, Option<u64>)> {
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
fn verdict_stays_within_a_200_mbit_limit() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Sandbox::new();
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
    repeat_until_reached(|_| {
        let found = verdicts(&place, &plan);
        let sizes: Vec<u64> = found.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [200, 576, 1_500]);
        assert!(found.iter().all(|(_, rate)| *rate <= Some(200 * MBIT)), "{found:?}");
        for (best, (_, rate)) in best.iter_mut().zip(found) {
            *best = rate.max(*best);
        }
        // The limit, or the step below it, because a limit counts whole frames.
        best.iter().all(|rate| *rate >= Some(100 * MBIT))
    });
    place.assert_no_leftovers();
}

/// A CPU load that ends with its test.
struct Burner(Child);

impl Burner {
    /// Occupies the sender's CPU for a millisecond at a time, with a millisecond between, at a
    /// higher real-time priority than the sender's. Returns `None` if that priority is refused.
    /// Unlike `dwell load cpu` it does not catch up on time that it did not get, so the sender
    /// keeps its half of a CPU that the host mostly takes.
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

/// The CPU of the sender.
const CPU: &str = "0";

/// A load affects the sender only at a higher priority. A train of 1500 B packets at 100 Mbit/s
/// takes 2.4 ms, so every train is delayed by more than the 5 % by which its rate may deviate.
#[test]
fn verdict_is_lower_under_load() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Sandbox::new();
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
        return skip("real-time priority for the load is not allowed here");
    };
    drop(burner);
    repeat_until_reached(|n| {
        let measure = |loaded: bool| {
            let _burner = loaded.then(|| Burner::start().unwrap());
            let found = verdicts(&place, &plan);
            assert_eq!(found.len(), 1, "{found:?}");
            // Without a verdict the rate is below all tested rates.
            let rate = found[0].1.unwrap_or(0);
            assert!(
                !loaded || rate < 100 * MBIT,
                "the sender is found to keep {rate} bit/s under load"
            );
            rate
        };
        // The two measurements alternate in order.
        let first = measure(n % 2 == 0);
        let second = measure(n % 2 != 0);
        first.max(second) >= 100 * MBIT
    });
    place.assert_no_leftovers();
}
