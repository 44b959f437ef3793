//! Reports the progress of a measurement.

use std::io::{self, IsTerminal};
use std::time::Instant as StdInstant;

use dwell_sample::Sample;
use dwell_stats::{Metric, RoundTrip};
use dwell_units::Nanos;
use indicatif::{ProgressBar, ProgressStyle};

use super::Args;
use super::replies::Replies;

/// Minimum interval between progress lines if standard error is not a terminal.
const LINE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);

/// Receives a measurement from the recording thread while it runs. A call that takes longer than the
/// ring of samples lasts (0.2 s at high rates) loses samples, which the result counts.
pub trait Observer {
    /// Receives a decided probe, in order of decision. Probes that a stepped clock made void are left
    /// out. Does nothing by default.
    fn record(&mut self, _sample: &Sample) {}
    /// Shows the measurement so far. Called ten times a second, first when probing starts.
    fn show(&mut self, measured: &RoundTrip);
    /// Shows a message immediately.
    fn say(&mut self, text: &str);
    /// Ends the display, before the result is printed.
    fn end(&mut self);
}

/// A progress bar on a terminal, occasional lines elsewhere, nothing if quiet.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    plain: Option<StdInstant>,
}

impl Progress {
    /// If `replies` are printed, there is no progress bar.
    pub(super) fn new(args: &Args, replies: Replies) -> Self {
        let quiet = args.quiet || args.jsonl || replies != Replies::Silent;
        if quiet || !io::stderr().is_terminal() {
            return Self { bar: None, plain: (!quiet).then(StdInstant::now) };
        }
        let (bar, template) = match args.job.parameters.count {
            Some(count) => (
                ProgressBar::new(count),
                "{bar:24} {pos}/{len} probes  {per_sec}  {eta} left  {msg}",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {pos} probes  {elapsed}  {msg}"),
        };
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        Self { bar: Some(bar.with_style(style)), plain: None }
    }
}

impl Observer for Progress {
    fn show(&mut self, measured: &RoundTrip) {
        let due = self.plain.is_some_and(|last| last.elapsed() >= LINE_INTERVAL);
        if self.bar.is_none() && !due {
            return;
        }
        let text = figures(measured);
        let sent = measured.packets().sent();
        match &self.bar {
            Some(bar) => {
                bar.set_position(sent);
                bar.set_message(text);
            }
            None => {
                crate::say(&format!("{sent} probes  {text}"));
                self.plain = Some(StdInstant::now());
            }
        }
    }

    fn say(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| crate::say(text)),
            None => crate::say(text),
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Figures for a progress line.
fn figures(measured: &RoundTrip) -> String {
    let figures = measured.figures(Metric::Rtt);
    let time = |value: Option<Nanos>| {
        value.map_or("-".to_owned(), |ns| format!("{:.1} us", ns.as_micros_f64()))
    };
    let percent = |ratio: Option<f64>| ratio.unwrap_or(0.0) * 100.0;
    let packets = measured.packets();
    let (lost, late) = (percent(packets.loss_ratio()), percent(packets.late_ratio()));
    let (median, p99) = (time(figures.p50), time(figures.p99));
    format!("median {median}  p99 {p99}  lost {lost:.2}%  late {late:.2}%")
}

#[cfg(test)]
mod tests {
    use dwell_sample::TimestampSource;
    use dwell_stats::Packets;

    use super::*;

    #[test]
    fn progress_shows_lost_and_late_separately() {
        let mut measured = RoundTrip::new(TimestampSource::User, 0);
        let packets = Packets { received: 5, lost: 1, late: 2, ..Packets::default() };
        measured.set_packets(packets);
        assert_eq!(figures(&measured), "median -  p99 -  lost 12.50%  late 25.00%");
    }
}
