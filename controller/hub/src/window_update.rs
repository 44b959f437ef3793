//! Which windows a batch changes, and their figures.

use std::collections::BTreeMap;

use crate::error::HubError;
use crate::period::{DAY_NS, Resolution};
use crate::row::{Row, StreamId};
use crate::store::{HubTransaction, Span};
use crate::window::{Window, WindowFigures};

/// What a batch changed in the rows of 5 min of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedRows {
    /// Start of the last changed row.
    last_ns: i64,
    /// Whether a row was removed, which may be the newest.
    is_removed: bool,
}

impl ChangedRows {
    /// Notes a row that starts at this time, and was added or removed.
    pub(crate) fn note(
        changed: &mut BTreeMap<StreamId, Self>,
        stream: StreamId,
        start_ns: i64,
        is_removed: bool,
    ) {
        let of = changed.entry(stream).or_insert(Self { last_ns: start_ns, is_removed });
        of.last_ns = of.last_ns.max(start_ns);
        of.is_removed |= is_removed;
    }
}

/// Computes the windows of streams again from their rows, whatever the order of the changes.
pub(crate) fn recompute(
    transaction: &mut dyn HubTransaction,
    changed: &BTreeMap<StreamId, ChangedRows>,
) -> Result<(), HubError> {
    let streams: Vec<StreamId> = changed.keys().copied().collect();
    let known: BTreeMap<_, _> =
        transaction.windows(Window::Day, Some(&streams))?.into_iter().collect();
    let mut newest = Vec::new();
    let mut windows = Vec::new();
    for (stream, of) in changed {
        let known = known.get(stream);
        // Older than the longest window.
        if known.is_some_and(|known| of.last_ns < known.to_ns - 2 * DAY_NS) {
            continue;
        }
        let last_ns = if of.is_removed {
            newest_row(transaction, *stream)?
        } else {
            let known_ns = known.map(|known| known.to_ns - Resolution::FiveMinutes.length_ns());
            Some(known_ns.map_or(of.last_ns, |known_ns| known_ns.max(of.last_ns)))
        };
        match last_ns {
            Some(last_ns) => newest.push((*stream, last_ns)),
            None => windows.extend(Window::ALL.map(|window| (*stream, window, None))),
        }
    }
    for window in Window::ALL {
        let spans: Vec<Span> =
            newest.iter().map(|(stream, last_ns)| span(window, *stream, *last_ns)).collect();
        let rows = transaction.rows(resolution(window), &spans)?;
        for (((stream, last_ns), span), rows) in newest.iter().zip(&spans).zip(&rows) {
            let merged = Row::merge(rows, span.from_ns);
            let to_ns = last_ns + Resolution::FiveMinutes.length_ns();
            let figures = merged.map(|row| WindowFigures::of(&row, span.from_ns, to_ns));
            windows.push((*stream, window, figures));
        }
    }
    transaction.set_windows(&windows)
}

/// Rows that are merged.
const fn resolution(window: Window) -> Resolution {
    match window {
        Window::Hour => Resolution::FiveMinutes,
        Window::Day => Resolution::Hour,
    }
}

/// Returns the span of the rows whose newest one of 5 min starts at this time.
const fn span(window: Window, stream: StreamId, last_ns: i64) -> Span {
    let to_ns = match window {
        Window::Hour => last_ns + Resolution::FiveMinutes.length_ns(),
        Window::Day => {
            let hour_ns = Resolution::Hour.floor(Resolution::FiveMinutes.middle(last_ns));
            hour_ns + Resolution::Hour.length_ns()
        }
    };
    Span { stream, from_ns: to_ns - window.length_ns(), to_ns }
}

/// Returns the start of the newest row of 5 min of a stream.
fn newest_row(
    transaction: &mut dyn HubTransaction,
    stream: StreamId,
) -> Result<Option<i64>, HubError> {
    let mut span = Span { stream, from_ns: i64::MIN, to_ns: i64::MAX };
    for resolution in [Resolution::Day, Resolution::Hour, Resolution::FiveMinutes] {
        let rows = transaction.rows(resolution, &[span])?.pop().unwrap_or_default();
        let Some(last) = rows.last() else { return Ok(None) };
        let from_ns = last.start_ns;
        span = Span { stream, from_ns, to_ns: from_ns.saturating_add(resolution.length_ns()) };
    }
    Ok(Some(span.from_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_is_the_open_hour_and_those_before() {
        const HOUR: i64 = Resolution::Hour.length_ns();
        let five = Resolution::FiveMinutes.length_ns();
        let ends = |window: Window, last_ns: i64| {
            let span = span(window, StreamId(1), last_ns);
            (span.from_ns, span.to_ns)
        };
        assert_eq!(ends(Window::Hour, 30 * HOUR), (29 * HOUR + five, 30 * HOUR + five));
        assert_eq!(ends(Window::Day, 30 * HOUR), (7 * HOUR, 31 * HOUR));
        assert_eq!(ends(Window::Day, 31 * HOUR - five), (7 * HOUR, 31 * HOUR));
        assert_eq!(ends(Window::Day, 30 * HOUR - 10), (7 * HOUR, 31 * HOUR), "by its middle");
    }
}
