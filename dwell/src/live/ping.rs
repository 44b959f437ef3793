//! `dwell ping --live`.

use std::io::{self, IsTerminal};
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use dwell_node_cli::ping::{self, Args, Observer};
use dwell_node_cli::terminal::escaped;
use dwell_node_cli::{Exit, Failure, say};
use dwell_sample::{Sample, State};
use dwell_stats::{Figures, Metric, Packets, RoundTrip};
use dwell_units::{Instant, Monotonic, Nanos};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use rustix::time::{ClockId, clock_gettime};

use super::row::{Row, delay, whole_seconds};
use super::timeline::{FOOT_LINES, LABEL_COLUMNS, MIN_CHART_COLUMNS, Timeline};
use super::{Painter, Support, Theme, View};

/// Id of the flag.
const FLAG: &str = "live";

/// Length of a bin of the timeline: what one turn of the recording thread adds.
const BIN: Nanos = Nanos::from_millis(100);

/// Lines of text above the chart.
const TEXT_LINES: u16 = 3;

/// Minimum height of the chart.
const MIN_CHART_LINES: u16 = 4;

/// Adds `--live` to `command` if it is `ping`. The flag is not an argument of the node's `ping`, so
/// `dwell-node` does without ratatui.
pub(crate) fn add_flag(command: Command) -> Command {
    if command.get_name() != "ping" {
        return command;
    }
    let help =
        "Show running percentiles, losses and a timeline that redraw in place, then the result";
    command.arg(
        Arg::new(FLAG)
            .long(FLAG)
            .action(ArgAction::SetTrue)
            .conflicts_with("quiet")
            .help(help)
            .long_help(format!(
                "{help}. No line per reply. Needs a terminal on standard error (over SSH: ssh -t), \
                 otherwise exits with code 2. With TERM=dumb, prints lines as without --live. \
                 NO_COLOR disables colours; locales other than UTF-8 get ASCII characters"
            )),
    )
}

/// Whether the command line has `ping --live`.
pub(crate) fn is_requested(matches: &ArgMatches) -> bool {
    matches.subcommand_matches("ping").is_some_and(|ping| ping.get_flag(FLAG))
}

/// Runs `ping` with a live view.
pub(crate) fn ping(args: &Args) -> Result<Exit, Failure> {
    let theme = match Support::detect() {
        Support::Full(theme) => theme,
        Support::NoTerminal => {
            return Err(Failure::usage(
                "--live needs a terminal, and standard error is not one; leave --live out, or use \
                 `ssh -t` over SSH",
            ));
        }
        Support::NoCursor => {
            say("dwell: --live: this terminal cannot move the cursor (see TERM); printing lines");
            return ping::run(args);
        }
    };
    let prints_rows = args.jsonl || args.csv.as_deref() == Some(Path::new("-"));
    if prints_rows && io::stdout().is_terminal() {
        let flag = if args.jsonl { "--jsonl" } else { "--csv -" };
        return Err(Failure::usage(format!(
            "{flag} and --live both write to this terminal; redirect standard output to a file"
        )));
    }
    ping::run_observed(args, Box::new(LivePing::new(args, theme)))
}

/// Collects the view on the recording thread and hands copies to the painter.
struct LivePing {
    view: PingView,
    theme: Theme,
    /// Start of the view on the schedule's clock.
    origin: Option<Instant<Monotonic>>,
    painter: Option<Painter<PingView>>,
}

impl LivePing {
    fn new(args: &Args, theme: Theme) -> Self {
        let parameters = &args.job.parameters;
        let view = PingView::new(&args.job.target, parameters.count, parameters.duration);
        Self { view, theme, origin: None, painter: None }
    }
}

impl Observer for LivePing {
    fn record(&mut self, sample: &Sample) {
        let origin = *self.origin.get_or_insert(sample.intended);
        self.view.record(sample, origin);
    }

    fn show(&mut self, measured: &RoundTrip) {
        self.view.packets = measured.packets();
        self.view.figures = measured.figures(Metric::Rtt);
        if let Some(painter) = &self.painter {
            painter.show(self.view.clone());
            return;
        }
        self.origin.get_or_insert_with(monotonic);
        match Painter::start(self.view.clone(), self.theme) {
            Ok(painter) => self.painter = Some(painter),
            Err(error) => say(&format!("dwell: cannot start the live view: {error}")),
        }
    }

    fn say(&mut self, text: &str) {
        match &self.painter {
            Some(painter) => painter.say(text),
            None => say(text),
        }
    }

    fn end(&mut self) {
        if let Some(mut painter) = self.painter.take() {
            self.view.ended = self.origin.map(|origin| monotonic() - origin);
            painter.show(self.view.clone());
            painter.end();
        }
    }
}

/// Now, on the clock of the schedule.
fn monotonic() -> Instant<Monotonic> {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_parts(now.tv_sec, now.tv_nsec)
}

/// A running measurement of round trips.
#[derive(Clone, Debug)]
pub(super) struct PingView {
    target: String,
    /// Requested number of probes.
    count: Option<u64>,
    /// Requested time to send.
    duration: Option<Nanos>,
    pub(super) packets: Packets,
    /// Round-trip delays; a percentile that the number of replies does not support is `None`.
    pub(super) figures: Figures,
    timeline: Timeline,
    /// When the measurement ended.
    pub(super) ended: Option<Nanos>,
}

impl PingView {
    /// A measurement that has not begun.
    pub(super) fn new(target: &str, count: Option<u64>, duration: Option<Nanos>) -> Self {
        Self {
            target: escaped(target).replace('\n', " "),
            count,
            duration,
            packets: Packets::default(),
            figures: Figures::default(),
            timeline: Timeline::new(BIN),
            ended: None,
        }
    }

    /// Adds a decided probe to the timeline, at its send time.
    pub(super) fn record(&mut self, sample: &Sample, origin: Instant<Monotonic>) {
        let at = sample.intended - origin;
        match (sample.state, sample.rx) {
            (State::Received, Some(rx)) => {
                let delay = rx.app - sample.tx.app;
                self.timeline.add_delay(at, delay, delay);
            }
            (State::Lost, _) => self.timeline.add_lost(at, 1),
            (State::Late, _) => self.timeline.add_late(at),
            _ => {}
        }
    }

    /// Time left: from the rate so far and the requested count, or from the requested duration.
    fn left(&self, at: Nanos) -> Option<Nanos> {
        let sent = self.packets.sent();
        let by_count = self.count.filter(|_| sent > 0).map(|count| {
            let left = count.saturating_sub(sent) as f64;
            Nanos((at.0 as f64 / sent as f64 * left) as i64)
        });
        let by_time = self.duration.map(|duration| (duration - at).max(Nanos::ZERO));
        match (by_count, by_time) {
            (Some(count), Some(time)) => Some(count.min(time)),
            (count, time) => count.or(time),
        }
    }

    fn header(&self, at: Nanos, bold: Style) -> Row {
        let row = Row::default().styled(2, self.target.clone(), bold);
        let row = row.add(0, whole_seconds(self.ended.unwrap_or(at)));
        match (self.ended, self.left(at)) {
            (Some(_), _) => row.add(1, "ended"),
            (None, Some(left)) => row.add(1, format!("{} left", whole_seconds(left))),
            (None, None) if self.count.is_none() => row.add(1, "^C ends"),
            (None, None) => row,
        }
    }

    fn counts(&self, theme: Theme) -> Row {
        let Packets { received, lost, late, duplicate, reordered, send_failed } = self.packets;
        let share = |ratio: Option<f64>| match ratio {
            Some(ratio) if ratio > 0.0 => format!(" ({:.2} %)", ratio * 100.0),
            _ => String::new(),
        };
        let marked = |count: u64, color| match count {
            0 => Style::new(),
            _ => theme.color(color).add_modifier(Modifier::BOLD),
        };
        let sent = match self.count {
            Some(count) => format!("sent {}/{count}", self.packets.sent()),
            None => format!("sent {}", self.packets.sent()),
        };
        let lost_text = format!("lost {lost}{}", share(self.packets.loss_ratio()));
        let late_text = format!("late {late}{}", share(self.packets.late_ratio()));
        let mut row = Row::default()
            .add(1, sent)
            .add(3, format!("received {received}"))
            .styled(0, lost_text, marked(lost, Color::Red))
            .styled(2, late_text, marked(late, Color::Yellow));
        for (count, name) in
            [(send_failed, "not sent"), (duplicate, "duplicate"), (reordered, "reordered")]
        {
            if count > 0 {
                row = row.add(4, format!("{name} {count}"));
            }
        }
        row
    }

    fn percentiles(&self, bold: Style) -> Row {
        let Figures { p50, p90, p95, p99, max, .. } = self.figures;
        let value = |name: &str, value: Option<Nanos>| {
            format!("{name} {:>8}", value.map_or("-".to_owned(), delay))
        };
        Row::default()
            .add(4, "rtt")
            .styled(0, value("p50", p50), bold)
            .add(5, value("p90", p90))
            .add(3, value("p95", p95))
            .styled(1, value("p99", p99), bold)
            .add(2, value("max", max))
    }
}

impl View for PingView {
    fn height(&self, available: Size) -> u16 {
        let least = TEXT_LINES + MIN_CHART_LINES + FOOT_LINES;
        if available.height < least || available.width < LABEL_COLUMNS + MIN_CHART_COLUMNS {
            return available.height.min(TEXT_LINES);
        }
        (TEXT_LINES + FOOT_LINES + (available.height / 4).clamp(6, 12)).min(available.height)
    }

    fn render(&self, at: Nanos, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let at = self.ended.unwrap_or(at);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let rows = [self.header(at, bold), self.counts(theme), self.percentiles(bold)];
        let hidden = rows.len().saturating_sub(usize::from(area.height));
        // The percentiles are the last to go.
        for (y, row) in (area.y..).zip(rows.into_iter().skip(hidden)) {
            row.render(Rect { y, height: 1, ..area }, buffer);
        }
        if area.height > TEXT_LINES {
            let height = area.height - TEXT_LINES;
            let chart = Rect { y: area.y + TEXT_LINES, height, ..area };
            self.timeline.render(at, theme, chart, buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_node_cli::{NodeProgram, examples};

    use super::*;

    #[test]
    fn only_dwell_has_live_ping() {
        let arguments = ["dwell", "ping", "--live", "192.0.2.7"];
        let dwell = examples::command::<crate::Program>(&crate::example_tables());
        assert!(is_requested(&dwell.clone().get_matches_from(arguments)));
        assert!(!is_requested(&dwell.clone().get_matches_from(["dwell", "ping", "192.0.2.7"])));
        assert!(!is_requested(&dwell.get_matches_from(["dwell", "doctor"])));
        let node = examples::command::<NodeProgram>(&examples::node_tables());
        assert!(node.try_get_matches_from(arguments).is_err());
    }

    #[test]
    fn time_left_is_the_shorter_of_count_and_duration() {
        let at = Nanos::from_secs(10);
        let left = |count, duration, sent| {
            let mut view = PingView::new("target", count, duration);
            view.packets.received = sent;
            view.left(at)
        };
        assert_eq!(left(None, None, 5), None);
        assert_eq!(left(Some(100), None, 0), None, "no rate yet");
        assert_eq!(left(Some(100), None, 20), Some(Nanos::from_secs(40)));
        assert_eq!(left(Some(100), Some(Nanos::from_secs(15)), 20), Some(Nanos::from_secs(5)));
        assert_eq!(left(None, Some(Nanos::from_secs(5)), 20), Some(Nanos::ZERO));
    }
}
