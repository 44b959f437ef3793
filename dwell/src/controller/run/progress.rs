//! Progress of a run: completed trials, time left, current cell and its figures.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dwell_node_cli::say;
use dwell_plan::{Estimate, Expansion};
use dwell_protocol::Progress as Probes;
use dwell_record::Summary;
use dwell_runner::{ProgressReporter, TrialEnd};
use dwell_units::Nanos;
use indicatif::HumanDuration;

use crate::live::{Painter, RunView, Support};

/// Minimum interval between lines when the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows a live view on a terminal and lines elsewhere.
pub(super) struct Progress {
    quiet: bool,
    view: RunView,
    /// Draws the view; `None` where lines are printed.
    painter: Option<Painter<RunView>>,
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
        let view = RunView::new(expansion.trials().len());
        let painter = match Support::detect() {
            Support::Full(theme) if !quiet => Painter::start(view.clone(), theme).ok(),
            _ => None,
        };
        let estimate = Estimate::of(expansion.plan());
        Self {
            quiet,
            view,
            painter,
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
        if let Some(mut painter) = self.painter.take() {
            self.view.end(self.elapsed());
            painter.show(self.view.clone());
            painter.end();
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

    /// Time since the start of the view.
    fn elapsed(&self) -> Nanos {
        Nanos(i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }

    fn show(&mut self, more: &str) {
        let left = self.left(Instant::now());
        if let Some(painter) = &self.painter {
            let left = left.and_then(|left| i64::try_from(left.as_nanos()).ok()).map(Nanos);
            self.view.set_end(left.map(|left| self.elapsed().saturating_add(left)));
            self.view.set_done(self.done);
            painter.show(self.view.clone());
            return;
        }
        if self.quiet || self.last_line.elapsed() < LINE_INTERVAL {
            return;
        }
        let left = left.map_or(String::new(), |left| format!("{} left  ", HumanDuration(left)));
        say(&format!("{} of {} trials  {left}{}{more}", self.done, self.all, self.cell));
        self.last_line = Instant::now();
    }
}

impl ProgressReporter for Progress {
    fn trial_started(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>) {
        self.done_before.get_or_insert(done);
        self.trial_began = Instant::now();
        (self.done, self.all) = (done, all);
        let cell: Vec<_> = cell.iter().map(|(name, value)| format!("{name} {value}")).collect();
        self.cell = if cell.is_empty() { format!("trial {trial}") } else { cell.join(", ") };
        self.view.start_trial(self.elapsed(), done, all, &self.cell);
        self.show("");
    }

    fn progress(&mut self, probes: &Probes) {
        self.view.add_progress(self.elapsed(), probes);
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

    fn measured(&mut self, _: u32, summary: &Summary) {
        self.view.add_summary(summary);
    }

    fn ended(&mut self, trial: u32, end: &TrialEnd) {
        self.done += 1;
        self.trial_began = Instant::now();
        let cell = self.cell.clone();
        self.view.add_end(end);
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
        match &self.painter {
            Some(painter) => painter.say(text),
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
            view: RunView::new(1),
            painter: None,
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
