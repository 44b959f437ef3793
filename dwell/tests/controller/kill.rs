//! A runner that is killed repeatedly at random moments.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::fixture::{STEP_TIMEOUT, Sandbox, as_root};

/// Number of trials of a run.
const TRIALS: u32 = 12;

/// Default number of kills, overridden by the environment variable DWELL_KILLS.
const DEFAULT_KILLS: usize = 50;

/// Maximum delay of a kill after the runner's start. Covers the time from before the run exists
/// until long after its first trials.
const MAX_AFTER_START: Duration = Duration::from_millis(700);

/// Maximum delay of a kill after the runner began to measure or finished a trial.
const MAX_AFTER_EVENT: Duration = Duration::from_millis(200);

/// A finished trial: its times, its only summary and its sample file.
#[derive(Clone, Debug, PartialEq)]
struct Finished {
    row: String,
    samples: (SystemTime, u64),
}

fn finished(sandbox: &Sandbox) -> BTreeMap<String, Finished> {
    let rows = sandbox.query(
        "SELECT runs.run || '/' || number || ' ' || trials.started || ' ' || trials.finished || ' '
             || first_ns || ' ' || samples || ' ' || group_concat(summaries.id)
         FROM trials JOIN runs ON runs.id = run_id
         JOIN summaries ON trial_id = trials.id AND role = 'measurement'
         WHERE trials.state = 'finished' GROUP BY trials.id",
    );
    let rows = rows.into_iter().map(|row| {
        let trial = row.split(' ').next().unwrap().to_owned();
        let file = fs::metadata(sandbox.data().join(format!("samples/{trial}.parquet"))).unwrap();
        (trial, Finished { row, samples: (file.modified().unwrap(), file.len()) })
    });
    rows.collect()
}

/// Phase in which a runner was killed, judged by the processes that outlive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It had started no process.
    Alone,
    /// It was removing a lab.
    LabDown,
    /// It was creating its lab.
    LabUp,
    /// Its nodes were running.
    Measuring,
}

impl Phase {
    /// Determines the phase of a runner that was just killed. `next` is the runner started after
    /// it.
    fn of_killed(sandbox: &Sandbox, next: &Child) -> Self {
        let parent = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat.rsplit_once(')').map(|(_, fields)| fields.to_owned());
            fields.and_then(|fields| fields.split_whitespace().nth(1)?.parse::<u32>().ok())
        };
        let is_of_next = |pid: u32| pid == next.id() || parent(pid) == Some(next.id());
        let orphans = sandbox.processes().into_iter().filter(|(pid, _)| !is_of_next(*pid));
        let phases = orphans.map(|(_, line)| match line {
            line if line.contains("lab up") => Self::LabUp,
            line if line.contains("lab down") => Self::LabDown,
            line if line.contains(" worker") => Self::Measuring,
            _ => Self::Alone,
        });
        phases.max().unwrap_or(Self::Alone)
    }
}

/// A runner and its sandbox.
struct Attempt<'a> {
    sandbox: &'a Sandbox,
    runner: Child,
}

impl Attempt<'_> {
    /// Waits for `moment`. Returns whether the runner is still running.
    fn outlives(&mut self, moment: Duration) -> bool {
        let until = Instant::now() + moment;
        while Instant::now() < until {
            if self.runner.try_wait().unwrap().is_some() {
                return false;
            }
            thread::sleep(Duration::from_micros(500));
        }
        self.runner.try_wait().unwrap().is_none()
    }

    /// Waits until the runner measures. Returns whether it is still running.
    fn measures(&mut self) -> bool {
        let sandbox = self.sandbox;
        let running =
            || !sandbox.query("SELECT state FROM trials WHERE state = 'running'").is_empty();
        self.outlasts(|| running() && !sandbox.workers().is_empty())
    }

    /// Waits until another trial is finished. Returns whether the runner is still running.
    fn finishes_a_trial(&mut self) -> bool {
        let sandbox = self.sandbox;
        let finished = || sandbox.query("SELECT state FROM trials WHERE state = 'finished'").len();
        let before = finished();
        self.outlasts(|| finished() > before)
    }

    /// Waits until `happened` returns true. Returns whether the runner is still running.
    fn outlasts(&mut self, mut happened: impl FnMut() -> bool) -> bool {
        let since = Instant::now();
        while !happened() {
            assert!(since.elapsed() < STEP_TIMEOUT, "no progress: {}", self.sandbox.stderr());
            if !self.outlives(Duration::from_millis(2)) {
                return false;
            }
        }
        true
    }
}

#[test]
fn killed_runner_resumes_and_measures_every_trial_once() {
    if !as_root() {
        return;
    }
    let drawn = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse().unwrap());
    let seed = number("DWELL_SEED").unwrap_or(drawn as u64 | 1);
    let wanted = number("DWELL_KILLS").map_or(DEFAULT_KILLS, |kills| kills as usize);
    println!("seed of the moments: {seed} (DWELL_SEED={seed} repeats them)");
    let mut x = seed;
    let mut random = move |below: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 16) % below
    };
    let sandbox = Sandbox::new();
    let plan = sandbox.plan(TRIALS);
    let start = |resume: bool| {
        let mut arguments = vec!["run", &plan, "--quiet"];
        arguments.extend(resume.then_some(["--resume", "last"]).iter().flatten());
        sandbox.start(&mut sandbox.command(&arguments))
    };
    let began = Instant::now();
    let (mut kills, mut checked) = (0, 0);
    let (mut refused, mut lost) = (Vec::new(), Vec::new());
    let mut known = BTreeMap::new();
    let mut phases = BTreeMap::<Phase, usize>::new();
    let mut attempt = Attempt { sandbox: &sandbox, runner: start(false) };
    let mut resumed = false;
    while kills < wanted {
        let mut within = |limit: Duration| Duration::from_micros(random(limit.as_micros() as u64));
        let (after_start, after_event) = (within(MAX_AFTER_START), within(MAX_AFTER_EVENT));
        // A third of the runners may be killed before they have a lab. The others must measure
        // first, so that the kill does not hide a refusal to resume.
        let kind = random(3);
        let alive = match kind {
            0 => attempt.outlives(after_start),
            1 => attempt.measures() && attempt.outlives(after_event),
            _ => attempt.finishes_a_trial() && attempt.outlives(after_event),
        };
        checked += usize::from(resumed && kind != 0);
        resumed = alive;
        if alive {
            attempt.runner.kill().unwrap();
            attempt.runner.wait().unwrap();
            kills += 1;
            attempt.runner = start(true);
            *phases.entry(Phase::of_killed(&sandbox, &attempt.runner)).or_default() += 1;
        } else {
            let status = attempt.runner.wait().unwrap();
            if !status.success() {
                refused.push(format!("after kill {kills}: {status}: {}", sandbox.stderr()));
            }
            attempt.runner = start(!status.success());
        }
        let now = finished(&sandbox);
        let changed = known.iter().filter(|(trial, before)| now.get(*trial) != Some(*before));
        lost.extend(changed.map(|(trial, _)| format!("{trial} after kill {kills}")));
        known = now;
    }
    let status = attempt.runner.wait().unwrap();
    assert!(status.success(), "{status}: {}", sandbox.stderr());
    let runs = sandbox.json(&["runs"]);
    let runs = runs["runs"].as_array().unwrap();
    for run in runs {
        assert_eq!((&run["trials_finished"], &run["state"]), (&TRIALS.into(), &"finished".into()));
    }
    let all = finished(&sandbox);
    lost.extend(
        known
            .iter()
            .filter(|(trial, before)| all.get(*trial) != Some(*before))
            .map(|(trial, _)| format!("{trial} at the end")),
    );
    // The ids of all measurements of the trial, after the last space.
    let doubled: Vec<_> = all.values().filter(|trial| trial.row.contains(',')).collect();
    println!(
        "{kills} kills over {} runs of {TRIALS} trials in {:.0?}: {} refused, {} trials lost, {} doubled; \
         {checked} resumed runners were seen to measure or to end; killed while {phases:?}",
        runs.len(),
        began.elapsed(),
        refused.len(),
        lost.len(),
        doubled.len(),
    );
    assert_eq!((refused, lost), (Vec::new(), Vec::new()));
    assert_eq!(doubled, Vec::<&Finished>::new());
    assert_eq!(all.len(), runs.len() * TRIALS as usize);
    sandbox.assert_no_leftovers();
}
