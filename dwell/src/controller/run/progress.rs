//! Progress of a run: completed trials, time left, current cell and its figures.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use dwell_node_cli::say;
use dwell_node_cli::terminal::escaped;
use dwell_plan::{Estimate, Expansion};
use dwell_protocol::Progress as Probes;
use dwell_runner::{ProgressReporter, TrialEnd};
use dwell_units::Nanos;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

/// Minimum interval between lines when the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows a bar on a terminal and lines elsewhere.
pub(super) struct Progress {
    quiet: bool,
    bar: Option<ProgressBar>,
    last_line: Instant,
    began: Instant,
    /// Start of the current trial.
    trial_began: Instant,
    /// Number of trials completed before this process started.
    done_before: Option<u32>,
    done: u32,
    all: u32,
    cell: String,
    /// Reasons of trials that were not run, each once.
    not_run: Vec<String>,
    /// Planned duration of a trial, used until the first one has ended.
    estimate: Option<Nanos>,
}

impl Progress {
    pub(super) fn new(quiet: bool, expansion: &Expansion) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            // On a narrow terminal the message is truncated instead of wrapped.
            let style = ProgressStyle::with_template("{bar:12} {pos}/{len} trials  {wide_msg}")
                .expect("the template is constant");
            ProgressBar::new(expansion.trials().len() as u64).with_style(style)
        });
        let estimate = Estimate::of(expansion.plan());
        Self {
            quiet,
            bar,
            last_line: Instant::now(),
            began: Instant::now(),
            trial_began: Instant::now(),
            done_before: None,
            done: 0,
            all: 0,
            cell: String::new(),
            not_run: Vec::new(),
            estimate: (!estimate.at_least).then_some(estimate.time),
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        let done = self.done.checked_sub(self.done_before?)?;
        let each = match done {
            0 => self.estimate?.to_std(),
            // Only completed trials count; the time of the current one is subtracted below.
            done => self.trial_began.saturating_duration_since(self.began) / done,
        };
        let under_way = now.saturating_duration_since(self.trial_began).min(each);
        Some((each * (self.all - self.done)).saturating_sub(under_way))
    }

    fn show(&mut self, more: &str) {
        let left = self
            .left(Instant::now())
            .map_or(String::new(), |left| format!("{} left  ", HumanDuration(left)));
        let text = format!("{left}{}{more}", self.cell);
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(self.all));
                bar.set_position(u64::from(self.done));
                bar.set_message(escaped(&text).into_owned());
            }
            None if !self.quiet && self.last_line.elapsed() >= LINE_INTERVAL => {
                say(&format!("{} of {} trials  {text}", self.done, self.all));
                self.last_line = Instant::now();
            }
            None => {}
        }
    }
}

impl ProgressReporter for Progress {
    fn trial_started(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>) {
        self.done_before.get_or_insert(done);
        self.trial_began = Instant::now();
        (self.done, self.all) = (done, all);
        let cell: Vec<_> = cell.iter().map(|(name, value)| format!("{name} {value}")).collect();
        self.cell = if cell.is_empty() { format!("trial {trial}") } else { cell.join(", ") };
        self.show("");
    }

    fn progress(&mut self, probes: &Probes) {
        let time =
            |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| format!("{:.1} us", ns as f64 / 1e3));
        let text = format!(
            "  {} probes, median {}, p99 {}, lost {}",
            probes.sent,
            time(probes.p50_ns),
            time(probes.p99_ns),
            probes.lost
        );
        self.show(&text);
    }

    fn ended(&mut self, trial: u32, end: &TrialEnd) {
        self.done += 1;
        self.trial_began = Instant::now();
        let cell = self.cell.clone();
        match end {
            TrialEnd::Finished => {}
            TrialEnd::Failed(reason) => {
                self.say(&format!("trial {trial} ({cell}) failed: {reason}"));
            }
            // An unsupported engine is reported once.
            TrialEnd::NotRun(reason) if !self.not_run.contains(reason) => {
                self.not_run.push(reason.clone());
                self.say(&format!("trial {trial} ({cell}) was not run: {reason}"));
            }
            TrialEnd::NotRun(_) => {}
        }
        self.show("");
    }

    fn say(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_decreases_within_a_trial_to_its_end() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut progress = Progress {
            quiet: true,
            bar: None,
            last_line: began,
            began,
            trial_began: began,
            done_before: Some(0),
            done: 0,
            all: 1,
            cell: String::new(),
            not_run: Vec::new(),
            estimate: Some(Nanos::from_secs(10)),
        };
        let left = |progress: &Progress, at| progress.left(after(at)).map(|left| left.as_secs());
        assert_eq!(left(&progress, 0), Some(10));
        assert_eq!(left(&progress, 4), Some(6));
        assert_eq!(left(&progress, 60), Some(0));
        // The durations of completed trials replace the plan's estimate.
        (progress.all, progress.done, progress.trial_began) = (4, 2, after(12));
        assert_eq!(left(&progress, 12), Some(12));
        assert_eq!(left(&progress, 15), Some(9));
        assert_eq!(left(&progress, 60), Some(6));
    }
}
