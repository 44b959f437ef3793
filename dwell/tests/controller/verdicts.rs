//! Rate verdicts about senders: at most the rate limit of the link, and lower under load.
//!
//! `make test` tests one limit in a few runs, `make accuracy` four limits in more runs
//! (`DWELL_VERDICTS=strict`).

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

/// From 100 Mbit/s on, a train takes at most 2.4 ms, so that most trains avoid the stalls of a busy
/// host. With 60 trains the median is known even if a third of them stall.
const TRAINS: &str = "count = 21\nrepeat = 60\npause = \"3ms\"\n";

/// A wide tolerance for gaps, because these tests are about rates: on a machine that is not idle,
/// gaps of 100 us deviate by a tenth.
const ACCURATE: &str = "[accurate]\ngap = \"50%\"\n";

/// Minimum number of runs per limit or load. Upper limits must hold in every run. The machine's
/// capacity is that of the best run, because a run during which the host steals CPU time has no
/// valid verdict.
const MIN_RUNS: usize = 4;

/// [`MIN_RUNS`] of the strict form.
const MIN_STRICT_RUNS: usize = 10;

/// Maximum number of runs until the best one is found.
const MAX_RUNS: usize = 12;

/// [`MAX_RUNS`] of the strict form.
const MAX_STRICT_RUNS: usize = 30;

/// A rate limit of the link and the tested rates, in Mbit/s: the limit and the steps beside it.
type Limit = (u64, [u64; 3]);

const SHORT_LIMITS: [Limit; 1] = [(200, [100, 200, 500])];

const STRICT_LIMITS: [Limit; 4] =
    [(10, [5, 10, 50]), (50, [10, 50, 100]), (100, [50, 100, 200]), SHORT_LIMITS[0]];

/// Maximum share of the busy CPU time that the host may steal; above it, the machine's capacity is
/// unknown.
const MAX_STOLEN_RATIO: f64 = 0.1;

fn is_strict() -> bool {
    std::env::var("DWELL_VERDICTS").is_ok_and(|how| how == "strict")
}

/// Repeats `run` until it returns true, at least [`MIN_RUNS`] times. If it never does, the test
/// fails, or is skipped if the host stole too much CPU time.
fn repeat_until_reached(mut run: impl FnMut(usize) -> bool) {
    let (min_runs, max_runs) =
        if is_strict() { (MIN_STRICT_RUNS, MAX_STRICT_RUNS) } else { (MIN_RUNS, MAX_RUNS) };
    let mut stolen = Vec::new();
    let mut reached = false;
    for n in 0..max_runs {
        let before = cpu_times();
        reached |= run(n);
        let after = cpu_times();
        stolen.push((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64);
        if reached && n + 1 >= min_runs {
            return;
        }
    }
    println!("share of busy CPU time stolen by the host: {stolen:.2?}");
    let least = stolen.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > MAX_STOLEN_RATIO, "the machine reached its rate in none of {max_runs} runs");
    skip(&format!("the host stole at least {:.0} % of the CPU time", least * 100.0));
}

/// Returns stolen and busy CPU time since boot, in ticks; busy time includes stolen time.
fn cpu_times() -> (u64, u64) {
    let cpus = dwell_host::stat(&fs::read_to_string("/proc/stat").unwrap()).cpus;
    let sum = |of: fn(&CpuTimes) -> u64| cpus.iter().map(of).sum();
    (sum(|cpu| cpu.stolen), sum(|cpu| cpu.stolen + cpu.busy))
}

/// Returns packet size and largest rate in bit/s of every sender of a run.
fn verdicts(sandbox: &Sandbox, plan: &str) -> Vec<(u64, Option<u64>)> {
    let output = sandbox.dwell(&["run", plan, "--quiet", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let shown = sandbox.json(&["show", "last"]);
    let of = |verdict: &Value| {
        println!("{verdict}");
        (verdict["ip_size"].as_u64().unwrap(), verdict["largest_rate_bps"].as_u64())
    };
    shown["verdicts"].as_array().unwrap().iter().map(of).collect()
}

#[test]
fn verdict_stays_within_the_rate_limit() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let sandbox = Sandbox::new();
    let limits = if is_strict() { &STRICT_LIMITS[..] } else { &SHORT_LIMITS };
    for limit in limits {
        assert_within_limit(&sandbox, *limit);
    }
    sandbox.assert_no_leftovers();
}

fn assert_within_limit(sandbox: &Sandbox, (limit, [below, at, above]): Limit) {
    let plan = sandbox.write(
        "limit.toml",
        &format!(
            "version = 1\nname = \"limit\"\n\
             [topology]\nlab = \"line:2\"\nlink = {{ rate = \"{limit}Mbit/s\", mechanism = \"tbf\" }}\n\
             [pace]\nfrom = \"n1\"\nto = \"n2\"\nengine = \"sleep-spin\"\nscheduling = \"fifo\"\n{TRAINS}\
             [matrix]\nsize = [\"200B\", \"576B\", \"1500B\"]\n\
             rate = [\"{below}Mbit/s\", \"{at}Mbit/s\", \"{above}Mbit/s\"]\n{ACCURATE}"
        ),
    );
    let mut best = [None; 3];
    repeat_until_reached(|_| {
        let found = verdicts(sandbox, &plan);
        let sizes: Vec<u64> = found.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [200, 576, 1_500]);
        assert!(found.iter().all(|(_, rate)| *rate <= Some(limit * MBIT)), "{limit}: {found:?}");
        for (best, (_, rate)) in best.iter_mut().zip(found) {
            *best = rate.max(*best);
        }
        // The limit, or the step below it, because a limit counts whole frames.
        best.iter().all(|rate| *rate >= Some(below * MBIT))
    });
}

/// A CPU load that ends with its test.
struct Burner(Child);

impl Burner {
    /// Occupies the sender's CPU for a millisecond at a time, with a millisecond between, at a
    /// higher real-time priority than the sender's. Returns `None` if that priority is refused.
    /// Unlike `dwell load cpu` it does not catch up on CPU time that it did not get, so the sender
    /// keeps half of a CPU even if the host steals most of it.
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

/// The load must have a higher priority than the sender to affect it. A train of 1500 B packets at
/// 100 Mbit/s takes 2.4 ms, so every train is delayed by more than the tolerated 5 %.
#[test]
fn verdict_is_lower_under_load() {
    if !as_root() {
        return;
    }
    let _alone = MACHINE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let sandbox = Sandbox::new();
    let plan = sandbox.write(
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
            let found = verdicts(&sandbox, &plan);
            assert_eq!(found.len(), 1, "{found:?}");
            // Without a verdict the rate is below all tested rates.
            let rate = found[0].1.unwrap_or(0);
            assert!(!loaded || rate < 100 * MBIT, "the verdict under load is {rate} bit/s");
            rate
        };
        // The two measurements alternate in order.
        let first = measure(n % 2 == 0);
        let second = measure(n % 2 != 0);
        first.max(second) >= 100 * MBIT
    });
    sandbox.assert_no_leftovers();
}
