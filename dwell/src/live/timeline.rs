//! Delay over time as a small chart, with a row that marks lost and late probes.

use std::collections::VecDeque;

use dwell_units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Line};

use super::Theme;
use super::row::{clock, delay};

/// Columns left of the chart: a label and the axis.
pub(super) const LABEL_COLUMNS: u16 = 10;

/// Maximum width of a chart in columns.
const MAX_CHART_COLUMNS: u16 = 120;

/// Minimum width of a chart in columns, without labels.
pub(super) const MIN_CHART_COLUMNS: u16 = 20;

/// Lines below the chart: lost and late probes, and the times at both ends.
pub(super) const FOOT_LINES: u16 = 2;

/// Number of bins that the chart covers once the measurement is longer than that. The widest chart
/// has 240 points and covers at most 240 bins more.
const WINDOW_BINS: i64 = 600;

/// Number of bins kept.
const MAX_BINS: usize = 1_024;

/// Delays and losses by send time, in bins of equal length. Bounded: old bins are dropped.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Length of a bin.
    bin: Nanos,
    /// Index of the first bin, counted from the start of the measurement.
    first: i64,
    bins: VecDeque<Bin>,
}

/// Probes sent within one bin, or within all bins of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bin {
    /// Shortest and longest delay in nanoseconds.
    delays: Option<(i64, i64)>,
    lost: u32,
    late: u32,
}

impl Bin {
    fn add_delay(&mut self, low: i64, high: i64) {
        let (least, most) = self.delays.unwrap_or((low, high));
        self.delays = Some((least.min(low), most.max(high)));
    }

    fn merge(&mut self, other: &Self) {
        if let Some((low, high)) = other.delays {
            self.add_delay(low, high);
        }
        self.lost += other.lost;
        self.late += other.late;
    }
}

/// Points of a chart from left to right.
#[derive(Debug, PartialEq, Eq)]
struct Points {
    /// Send time at the left edge.
    from: Nanos,
    /// Send time at the right edge.
    to: Nanos,
    points: Vec<Bin>,
}

impl Timeline {
    pub(super) fn new(bin: Nanos) -> Self {
        Self { bin, first: 0, bins: VecDeque::new() }
    }

    /// Adds a range of delays of probes sent `at` this time.
    pub(super) fn add_delay(&mut self, at: Nanos, low: Nanos, high: Nanos) {
        if let Some(bin) = self.bin_at(at) {
            bin.add_delay(low.0, high.0);
        }
    }

    /// Adds lost probes.
    pub(super) fn add_lost(&mut self, at: Nanos, count: u32) {
        if let Some(bin) = self.bin_at(at) {
            bin.lost += count;
        }
    }

    /// Turns a lost probe into a late one.
    pub(super) fn add_late(&mut self, at: Nanos) {
        if let Some(bin) = self.bin_at(at) {
            bin.lost = bin.lost.saturating_sub(1);
            bin.late += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// The bin of a time, created if it is newer than all others; `None` if it was dropped.
    fn bin_at(&mut self, at: Nanos) -> Option<&mut Bin> {
        let index = at.0.max(0) / self.bin.0;
        let end = self.first + self.bins.len() as i64;
        if index >= end + MAX_BINS as i64 {
            self.bins.clear();
            self.first = index;
        }
        while self.first + (self.bins.len() as i64) <= index {
            if self.bins.len() == MAX_BINS {
                self.bins.pop_front();
                self.first += 1;
            }
            self.bins.push_back(Bin::default());
        }
        self.bins.get_mut(usize::try_from(index - self.first).ok()?)
    }

    /// Divides the time until `now` into `count` points. Point boundaries are multiples of a point's
    /// length, so that the chart scrolls by whole points.
    fn points(&self, now: Nanos, count: usize) -> Points {
        let count = count.max(1) as i64;
        let newest = now.0.max(0) / self.bin.0;
        let each = ((newest + 1).min(WINDOW_BINS) as u64).div_ceil(count as u64) as i64;
        let first = (newest / each - count + 1).max(0);
        let point = |n: i64| {
            let mut merged = Bin::default();
            for index in n * each..(n + 1) * each {
                let bin = usize::try_from(index - self.first).ok();
                bin.and_then(|bin| self.bins.get(bin)).inspect(|bin| merged.merge(bin));
            }
            merged
        };
        let time = |n: i64| self.bin.saturating_mul(n.saturating_mul(each));
        Points {
            from: time(first),
            to: time(first + count),
            points: (first..first + count).map(point).collect(),
        }
    }

    /// Draws the chart, its labels and the lines below it.
    pub(super) fn render(&self, now: Nanos, theme: Theme, area: Rect, buffer: &mut Buffer) {
        let columns = area.width.saturating_sub(LABEL_COLUMNS).min(MAX_CHART_COLUMNS);
        let rows = area.height.saturating_sub(FOOT_LINES);
        if columns == 0 || rows == 0 {
            return;
        }
        let per_column = theme.points_per_column();
        let Points { from, to, points } = self.points(now, usize::from(columns) * per_column);
        let chart = Rect { x: area.x + LABEL_COLUMNS, width: columns, height: rows, ..area };
        let delays = points.iter().filter_map(|point| point.delays);
        let range = delays.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        let label = |line: u16, text: &str, buffer: &mut Buffer| {
            let text = format!("{text:>9}");
            buffer.set_stringn(area.x, area.y + line, text, 9, Style::new());
        };
        if let Some((low, high)) = range {
            label(0, &delay(Nanos(high)), buffer);
            if rows > 1 && low < high {
                label(rows - 1, &delay(Nanos(low)), buffer);
            }
            plot(&points, (low, high), theme, chart, buffer);
        }
        for line in 0..rows {
            let axis = theme.symbol("\u{2502}", "|");
            buffer.set_string(area.x + LABEL_COLUMNS - 1, area.y + line, axis, Style::new());
        }
        label(rows, "lost/late", buffer);
        for (column, points) in (chart.x..).zip(points.chunks(per_column)) {
            let marked = |count: fn(&Bin) -> u32| points.iter().any(|point| count(point) > 0);
            let (mark, color) = if marked(|point| point.lost) {
                ("x", Color::Red)
            } else if marked(|point| point.late) {
                ("l", Color::Yellow)
            } else {
                continue;
            };
            buffer.set_string(column, area.y + rows, mark, theme.color(color));
        }
        let line = area.y + rows + 1;
        buffer.set_string(chart.x, line, clock(from), Style::new());
        let end = clock(to);
        let x = (chart.x + columns).saturating_sub(end.len() as u16);
        buffer.set_string(x, line, end, Style::new());
    }
}

/// Draws a vertical line per point from its shortest to its longest delay.
fn plot(points: &[Bin], range: (i64, i64), theme: Theme, area: Rect, buffer: &mut Buffer) {
    let color = if theme.has_color { Color::Cyan } else { Color::Reset };
    let (low, high) = (range.0 as f64, range.1 as f64);
    // Equal delays are drawn at the bottom.
    let high = if low < high { high } else { low + 1.0 };
    let canvas = Canvas::default()
        .marker(theme.marker())
        .x_bounds([0.0, points.len().saturating_sub(1) as f64])
        .y_bounds([low, high])
        .paint(|context| {
            for (x, point) in points.iter().enumerate() {
                if let Some((from, to)) = point.delays {
                    let x = x as f64;
                    context.draw(&Line::new(x, from as f64, x, to as f64, color));
                }
            }
        });
    canvas.render(area, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIN: Nanos = Nanos::from_millis(100);

    fn at(bin: i64) -> Nanos {
        Nanos(bin * BIN.0)
    }

    fn with_delay(timeline: &mut Timeline, bin: i64, delay: i64) {
        timeline.add_delay(at(bin), Nanos(delay), Nanos(delay));
    }

    fn delays(points: &Points) -> Vec<i64> {
        points.points.iter().map(|point| point.delays.map_or(-1, |(_, high)| high)).collect()
    }

    #[test]
    fn points_fill_from_the_left_then_scroll() {
        let mut timeline = Timeline::new(BIN);
        (0..3).for_each(|bin| with_delay(&mut timeline, bin, bin));
        let early = timeline.points(at(2), 4);
        assert_eq!((early.from, early.to), (at(0), at(4)));
        assert_eq!(delays(&early), [0, 1, 2, -1]);
        (3..10_000).for_each(|bin| with_delay(&mut timeline, bin, bin));
        let late = timeline.points(at(9_999), 100);
        assert_eq!(late.to.0 - late.from.0, at(WINDOW_BINS).0);
        assert_eq!(delays(&late).last(), Some(&9_999));
        // One bin later the boundaries of the points are the same.
        with_delay(&mut timeline, 10_000, 10_000);
        let next = timeline.points(at(10_000), 100);
        assert_eq!((next.from.0 - late.from.0) % at(6).0, 0);
        assert!(timeline.bins.len() <= MAX_BINS);
    }

    #[test]
    fn point_keeps_extremes_and_losses_of_its_bins() {
        let mut timeline = Timeline::new(BIN);
        for (bin, delay) in [(0, 50), (1, 7), (2, 30)] {
            with_delay(&mut timeline, bin, delay);
        }
        timeline.add_lost(at(1), 2);
        timeline.add_late(at(1));
        let all = timeline.points(at(2), 1);
        assert_eq!(all.points, [Bin { delays: Some((7, 50)), lost: 1, late: 1 }]);
    }

    #[test]
    fn dropped_and_distant_times_do_no_harm() {
        let mut timeline = Timeline::new(BIN);
        with_delay(&mut timeline, 0, 1);
        with_delay(&mut timeline, i64::MAX / BIN.0, 2);
        timeline.add_lost(Nanos(-5), 1);
        assert_eq!(timeline.bins.len(), 1);
        let points = timeline.points(Nanos(i64::MAX), 10);
        assert_eq!(delays(&points).last(), Some(&2));
    }
}
