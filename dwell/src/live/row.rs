//! Lines of text that fit a narrow terminal, and the numbers in them.

use dwell_units::Nanos;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

/// A line of segments, two spaces apart. Segments that do not fit are left out, the least important
/// first.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    /// 0 is the most important.
    rank: u8,
    span: Span<'static>,
}

/// Spaces between segments.
const GAP: &str = "  ";

impl Row {
    /// Appends a segment; 0 is the most important rank.
    pub(super) fn add(self, rank: u8, text: impl Into<String>) -> Self {
        self.styled(rank, text, Style::new())
    }

    /// Appends a segment with a style.
    pub(super) fn styled(mut self, rank: u8, text: impl Into<String>, style: Style) -> Self {
        self.segments.push(Segment { rank, span: Span::styled(text.into(), style) });
        self
    }

    /// Draws the row into the first line of `area`. A single segment that is too long is truncated.
    pub(super) fn render(mut self, area: Rect, buffer: &mut Buffer) {
        while self.segments.len() > 1 && self.width() > usize::from(area.width) {
            let least = self.segments.iter().map(|segment| segment.rank).max();
            let last = self.segments.iter().rposition(|segment| Some(segment.rank) == least);
            self.segments.remove(last.unwrap_or_default());
        }
        let mut spans = Vec::new();
        for segment in self.segments {
            if !spans.is_empty() {
                spans.push(Span::raw(GAP));
            }
            spans.push(segment.span);
        }
        Line::from(spans).render(area, buffer);
    }

    fn width(&self) -> usize {
        let widths: usize = self.segments.iter().map(|segment| segment.span.width()).sum();
        widths + GAP.len() * self.segments.len().saturating_sub(1)
    }
}

/// The unit that leaves one to three digits before the point: its size in nanoseconds and its name.
fn unit(time: Nanos) -> (f64, &'static str) {
    match time.0.unsigned_abs() {
        0..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// A number with at most two decimals, three significant digits where it has a fraction.
fn number(value: f64) -> String {
    match value.abs() {
        0.0..9.995 => format!("{value:.2}"),
        9.995..999.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A delay with its unit, like `71.3 us`.
pub(super) fn delay(time: Nanos) -> String {
    let (size, unit) = unit(time);
    format!("{} {unit}", number(time.0 as f64 / size))
}

/// Time since the start, like `13.9 s`, `2:05` or `1:02:05`. Without tenths if they are 0.
pub(super) fn clock(time: Nanos) -> String {
    let tenths = time.0.max(0) / 100_000_000;
    let (seconds, tenths) = (tenths / 10, tenths % 10);
    let (minutes, hours) = (seconds / 60 % 60, seconds / 3_600);
    match (hours, minutes) {
        (0, 0) if tenths == 0 => format!("{seconds} s"),
        (0, 0) => format!("{seconds}.{tenths} s"),
        (0, _) => format!("{minutes}:{:02}", seconds % 60),
        _ => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
    }
}

/// Like [`clock`], in whole seconds.
pub(super) fn whole_seconds(time: Nanos) -> String {
    clock(Nanos::from_secs(time.0 / 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(row: &Row, width: u16) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
        row.clone().render(buffer.area, &mut buffer);
        let cells = buffer.content.iter().map(|cell| cell.symbol());
        cells.collect::<String>().trim_end().to_owned()
    }

    #[test]
    fn narrow_row_drops_the_least_important_segments() {
        let row =
            Row::default().add(0, "p50 70").add(2, "p90 80").add(2, "p95 85").add(1, "p99 90");
        assert_eq!(shown(&row, 30), "p50 70  p90 80  p95 85  p99 90");
        assert_eq!(shown(&row, 29), "p50 70  p90 80  p99 90");
        assert_eq!(shown(&row, 21), "p50 70  p99 90");
        assert_eq!(shown(&row, 13), "p50 70");
        assert_eq!(shown(&row, 3), "p50", "the last segment is truncated");
    }

    #[test]
    fn numbers_have_three_digits_and_times_a_clock() {
        let all = [0.0, 9.994, 9.995, 71.26, 999.94, 999.95, 12_345.6].map(number);
        assert_eq!(all, ["0.00", "9.99", "10.0", "71.3", "999.9", "1000", "12346"]);
        assert_eq!(delay(Nanos(1_402_100)), "1.40 ms");
        let seconds = [0.0, 13.95, 60.0, 125.9, 3_725.0].map(Nanos::from_secs_f64).map(clock);
        assert_eq!(seconds, ["0 s", "13.9 s", "1:00", "2:05", "1:02:05"]);
        assert_eq!(whole_seconds(Nanos(13_900_000_000)), "13 s");
    }
}
