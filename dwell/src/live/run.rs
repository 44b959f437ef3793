//! The view of `dwell run`.

use std::collections::VecDeque;

use dwell_node_cli::terminal::escaped;
use dwell_protocol::Progress;
use dwell_record::Summary;
use dwell_runner::TrialEnd;
use dwell_units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Sparkline, SparklineBar, Widget};

use super::row::{Row, delay, whole_seconds};
use super::timeline::{FOOT_LINES, LABEL_COLUMNS, MIN_CHART_COLUMNS, Timeline};
use super::{Theme, View};

/// Length of a bin of the timeline: the interval of progress events.
const BIN: Nanos = Nanos::from_millis(500);

/// Number of finished trials whose medians are kept: more than the widest sparkline shows.
const MAX_MEDIANS: usize = 512;

/// Metrics whose median is shown, the first that a trial has, and their labels.
const METRICS: [(&str, &str); 3] = [
    ("rtt_ns", "rtt p50"),
    ("one_way_forward_ns", "1-way p50"),
    ("schedule_error_ns", "sched p50"),
];

/// Lines of text.
const TEXT_LINES: u16 = 3;

/// Height of the chart of the current trial.
const CHART_LINES: u16 = 4;

/// Height of the medians.
const MEDIAN_LINES: u16 = 2;

/// Width of the bar in columns.
const BAR_COLUMNS: usize = 16;

/// A running plan.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    /// Trials completed, and all.
    done: u32,
    all: u32,
    failed: u32,
    not_run: u32,
    /// Cell of the current trial.
    cell: String,
    progress: Option<Progress>,
    /// Start of the current trial since the start of the view.
    trial_began: Nanos,
    /// p50 to p99 of the current trial over time.
    timeline: Timeline,
    /// Medians of finished trials in ns, the newest last; `None` for trials without one.
    medians: VecDeque<Option<u64>>,
    /// Label of the medians.
    label: &'static str,
    /// Estimated end, since the start of the view.
    end_at: Option<Nanos>,
    ended: Option<Nanos>,
}

impl RunView {
    /// A run of this many trials that has not begun.
    pub(crate) fn new(all: usize) -> Self {
        Self {
            done: 0,
            all: u32::try_from(all).unwrap_or(u32::MAX),
            failed: 0,
            not_run: 0,
            cell: "preparing".to_owned(),
            progress: None,
            trial_began: Nanos::ZERO,
            timeline: Timeline::new(BIN),
            medians: VecDeque::new(),
            label: "medians",
            end_at: None,
            ended: None,
        }
    }

    /// Starts a trial of `cell` at a time since the start of the view.
    pub(crate) fn start_trial(&mut self, at: Nanos, done: u32, all: u32, cell: &str) {
        (self.done, self.all) = (done, all);
        self.cell = escaped(cell).replace('\n', " ");
        self.progress = None;
        self.trial_began = at;
        self.timeline = Timeline::new(BIN);
    }

    /// Adds the progress of the current trial.
    pub(crate) fn add_progress(&mut self, at: Nanos, progress: &Progress) {
        let at = at - self.trial_began;
        if let Some(median) = progress.p50_ns {
            let high = progress.p99_ns.unwrap_or(median);
            self.timeline.add_delay(at, Nanos(median), Nanos(high));
        }
        let lost = progress.lost
            - self.progress.as_ref().map_or(0, |before| before.lost).min(progress.lost);
        if lost > 0 {
            self.timeline.add_lost(at, u32::try_from(lost).unwrap_or(u32::MAX));
        }
        self.progress = Some(*progress);
    }

    /// Adds the median of a measured trial.
    pub(crate) fn add_summary(&mut self, summary: &Summary) {
        let mut found = None;
        for (name, label) in METRICS {
            if let Some(median) = summary.metrics.get(name).and_then(|figures| figures.p50) {
                (self.label, found) = (label, Some(median.unsigned_abs()));
                break;
            }
        }
        self.add_median(found);
    }

    /// Counts a trial that failed or was not run.
    pub(crate) fn add_end(&mut self, end: &TrialEnd) {
        match end {
            // Its median was added with its summary.
            TrialEnd::Finished => return,
            TrialEnd::Failed(_) => self.failed += 1,
            TrialEnd::NotRun(_) => self.not_run += 1,
        }
        self.add_median(None);
    }

    /// Sets the number of completed trials.
    pub(crate) fn set_done(&mut self, done: u32) {
        self.done = done;
    }

    /// Sets the estimated end of the run.
    pub(crate) fn set_end(&mut self, at: Option<Nanos>) {
        self.end_at = at;
    }

    /// Ends the view: the current trial is left out.
    pub(crate) fn end(&mut self, at: Nanos) {
        self.ended = Some(at);
    }

    fn add_median(&mut self, median: Option<u64>) {
        if self.medians.len() == MAX_MEDIANS {
            self.medians.pop_front();
        }
        self.medians.push_back(median);
    }

    fn header(&self, at: Nanos, theme: Theme, bold: Style) -> Row {
        let full = BAR_COLUMNS * self.done as usize / (self.all.max(1) as usize);
        let full = full.min(BAR_COLUMNS);
        let bar = theme.symbol("\u{2588}", "#").repeat(full)
            + &theme.symbol("\u{2591}", ".").repeat(BAR_COLUMNS - full);
        let mut row = Row::default()
            .styled(0, format!("trials {}/{}", self.done, self.all), bold)
            .add(4, bar);
        if self.failed > 0 {
            let red = theme.color(Color::Red).add_modifier(Modifier::BOLD);
            row = row.styled(1, format!("failed {}", self.failed), red);
        }
        if self.not_run > 0 {
            row = row.styled(2, format!("not run {}", self.not_run), theme.color(Color::Yellow));
        }
        let row = row.add(2, whole_seconds(self.ended.unwrap_or(at)));
        match (self.ended, self.end_at) {
            (Some(_), _) => row.add(3, "ended"),
            (None, Some(end)) => {
                let left = (end - at).max(Nanos::ZERO);
                row.add(1, format!("{} left", whole_seconds(left)))
            }
            (None, None) => row,
        }
    }

    fn figures(&self, at: Nanos, theme: Theme, bold: Style) -> Row {
        let Some(progress) = &self.progress else {
            return Row::default().add(0, whole_seconds(at - self.trial_began));
        };
        let time = |ns: Option<i64>| ns.map_or("-".to_owned(), |ns| delay(Nanos(ns)));
        let lost = match progress.lost {
            0 => Style::new(),
            _ => theme.color(Color::Red).add_modifier(Modifier::BOLD),
        };
        Row::default()
            .add(2, format!("sent {}", progress.sent))
            .styled(1, format!("lost {}", progress.lost), lost)
            .add(3, "rtt")
            .styled(0, format!("p50 {}", time(progress.p50_ns)), bold)
            .styled(0, format!("p99 {}", time(progress.p99_ns)), bold)
    }

    /// Draws the medians of the newest trials, each relative to the largest.
    fn render_medians(&self, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let columns = usize::from(area.width.saturating_sub(LABEL_COLUMNS));
        let shown = self.medians.iter().skip(self.medians.len().saturating_sub(columns));
        let most = shown.clone().flatten().max().copied().unwrap_or_default();
        let red = theme.color(Color::Red);
        let bars = shown.map(|median| match median {
            // A median of 0 has no bar, and would look like no trial.
            Some(median) => SparklineBar::from((*median).max(1)),
            None => SparklineBar::from(None).style(Some(red)),
        });
        let chart = Rect {
            x: area.x + LABEL_COLUMNS,
            width: area.width.saturating_sub(LABEL_COLUMNS),
            ..area
        };
        Sparkline::default()
            .data(bars.collect::<Vec<_>>())
            .max(most.max(1))
            .bar_set(theme.bars())
            .absent_value_symbol("x")
            .absent_value_style(red)
            .style(theme.color(Color::Green))
            .render(chart, buffer);
        let label = |line: u16, text: &str, buffer: &mut Buffer| {
            buffer.set_stringn(area.x, area.y + line, format!("{text:>9}"), 9, Style::new());
        };
        if most > 0 {
            label(0, &delay(Nanos(most as i64)), buffer);
        }
        if area.height > 1 {
            label(area.height - 1, self.label, buffer);
        }
    }

    /// Whether the current trial reports delays while it runs.
    fn has_chart(&self) -> bool {
        self.ended.is_none() && !self.timeline.is_empty()
    }
}

impl View for RunView {
    fn height(&self, available: Size) -> u16 {
        let text = if self.ended.is_some() { 1 } else { TEXT_LINES };
        let has_width = available.width >= LABEL_COLUMNS + MIN_CHART_COLUMNS;
        if !has_width || available.height < TEXT_LINES + MEDIAN_LINES {
            return available.height.min(text);
        }
        // The height is that with a chart while trials run, so that the view does not jump.
        let chart = CHART_LINES + FOOT_LINES;
        match self.ended {
            None if available.height >= text + MEDIAN_LINES + chart => text + MEDIAN_LINES + chart,
            _ => text + MEDIAN_LINES,
        }
    }

    fn render(&self, at: Nanos, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let at = self.ended.unwrap_or(at);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut rows = vec![self.header(at, theme, bold)];
        if self.ended.is_none() {
            rows.push(Row::default().add(0, self.cell.clone()));
            rows.push(self.figures(at, theme, bold));
        }
        let text = rows.len().min(usize::from(area.height)) as u16;
        for (y, row) in (area.y..area.y + text).zip(rows) {
            row.render(Rect { y, height: 1, ..area }, buffer);
        }
        let left = area.height - text;
        if left >= MEDIAN_LINES {
            let medians = Rect { y: area.y + text, height: MEDIAN_LINES, ..area };
            self.render_medians(theme, medians, buffer);
        }
        if left > MEDIAN_LINES && self.has_chart() {
            let above = text + MEDIAN_LINES;
            let chart = Rect { y: area.y + above, height: area.height - above, ..area };
            self.timeline.render(at - self.trial_began, theme, chart, buffer);
        }
    }
}
