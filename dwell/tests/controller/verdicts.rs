//! What a node is found to measure: no more than a limit lets through, and no more under load than
//! without it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::fixture::{Place, as_root, skip};

/// One test's load is not for the other test's sender.
static MACHINE: Mutex<()> = Mutex::new(());

const MBIT: u64 = 1_000_000;

/// Trains so short that most of them meet no stall of a busy host, 2.4 ms at the longest, and so
/// many that a third of them may meet one and the median is known all the same.
const TRAINS: &str = "count = 21\nrepeat = 60\npause = \"3ms\"\n";

/// Both limits and loads are found by the rate; gaps of 100 us are off by a tenth on a machine that does
/// anything else.
const ACCURATE: &str = "[accurate]\ngap = \"50%\"\n";

/// Runs, or pairs of them, of each test, all of which are judged. While its host takes its processors away a machine
/// measures nothing, and its verdict says so: what must never be is asked of every run, what a machine
/// can do of the best.
const RUNS: usize = 4;

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
             [pace]\nfrom = \"n1\"\nto = \"n2\"\nengine = \"sleep-spin\"\n{TRAINS}\
             [matrix]\nsize = [\"200B\", \"576B\", \"1500B\"]\n\
             rate = [\"100Mbit/s\", \"200Mbit/s\", \"500Mbit/s\"]\n{ACCURATE}"
        ),
    );
    let mut best = [None; 3];
    for _ in 0..RUNS {
        let found = verdicts(&place, &plan);
        let sizes: Vec<u64> = found.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes, [200, 576, 1_500]);
        assert!(found.iter().all(|(_, rate)| *rate <= Some(200 * MBIT)), "{found:?}");
        for (best, (_, rate)) in best.iter_mut().zip(found) {
            *best = rate.max(*best);
        }
    }
    // The limit or, as a limit counts whole frames, the step below it.
    assert!(best.iter().all(|rate| *rate >= Some(100 * MBIT)), "the best verdicts are {best:?}");
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

/// The sender has real-time priority, so that what else this machine does does not reach it, and runs
/// without load are without load. What reaches it has to come at a higher priority. A train of
/// 1500 B at 100 Mbit/s takes 2.4 ms, so that all trains, wherever they begin, are held up for more
/// than the twentieth of that by which their rate may be off.
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
    let mut pairs = Vec::new();
    for pair in 0..RUNS {
        let measure = |loaded: bool| {
            let _burner = loaded.then(|| Burner::start().unwrap());
            let found = verdicts(&place, &plan);
            assert_eq!(found.len(), 1, "{found:?}");
            found[0].1
        };
        // Each comes first in turn.
        let first = measure(pair % 2 == 0);
        let second = measure(pair % 2 != 0);
        pairs.push(if pair % 2 == 0 { (second, first) } else { (first, second) });
    }
    // No verdict is below every rate, and none of the rates is no more than that.
    let at_least = |rate: &Option<u64>| rate.unwrap_or(0);
    let never_more = pairs.iter().all(|(idle, loaded)| at_least(loaded) <= at_least(idle));
    let once_less = pairs.iter().any(|(idle, loaded)| at_least(loaded) < at_least(idle));
    assert!(never_more && once_less, "idle and loaded: {pairs:?}");
    place.assert_nothing_is_left();
}
