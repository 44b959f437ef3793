//! Goals of the web controller.

use serde::Serialize;

use crate::judge::{Bound, Estimate, Judged, Unit, paired};

/// All measurements.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    /// Resident memory after the first requests, in MB.
    pub(super) idle_mb: Option<f64>,
    /// Requests to the API, those that failed, and their delays in ms, ascending.
    pub(super) requests: u64,
    pub(super) request_errors: Option<u64>,
    pub(super) p99_ms: Option<f64>,
    /// Event streams open at the same time, and resident memory with them in MB.
    pub(super) streams: Option<u64>,
    pub(super) streams_mb: Option<f64>,
    /// Times until the page of a large run has answered, and until its first figure is drawn, in ms.
    pub(super) page_ms: Vec<f64>,
    pub(super) first_figure_ms: Vec<f64>,
    /// Rounds of experiments.
    pub(super) rounds: Vec<Round>,
}

/// One experiment without a page, one with one page, one with many.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Round {
    pub(super) alone: Watched,
    pub(super) one: Watched,
    pub(super) many: Watched,
}

/// An experiment that was watched.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Watched {
    /// p99 of the schedule error in us.
    pub(super) p99_us: f64,
    /// Share of one processor that the server used.
    pub(super) cpu: f64,
    /// Updates per second that each page received.
    pub(super) updates: f64,
}

/// Judges every goal. `streams` is the number of event streams that were to be opened.
pub(super) fn judge(measured: &Measured, streams: u64) -> Vec<Judged> {
    let exact = |value: Option<f64>| value.map(Estimate::exact);
    let of = |get: fn(&Round) -> f64| -> Vec<f64> { measured.rounds.iter().map(get).collect() };
    let alone = of(|round| round.alone.p99_us);
    let many = of(|round| round.many.p99_us);
    let updates = paired::location(&of(|round| round.one.updates)).map(|updates| updates.value);
    let note = updates.map(|updates| format!("{updates:.1} updates/s"));
    vec![
        Judged::new("memory: idle", exact(measured.idle_mb), Bound::AtMost(30.0), Unit::Mb),
        Judged::new(
            "API: failed requests at 200/s",
            exact(measured.request_errors.map(|errors| errors as f64)),
            Bound::AtMost(0.0),
            Unit::Count,
        )
        .with_note(
            measured.p99_ms.map(|p99| format!("{} requests, p99 {p99:.1} ms", measured.requests)),
        ),
        Judged::new(
            "event streams: open",
            exact(measured.streams.map(|streams| streams as f64)),
            Bound::AtLeast(streams as f64),
            Unit::Count,
        )
        .with_note(measured.streams_mb.map(|mb| format!("{mb:.1} MB resident"))),
        Judged::new(
            "run page of 10 million samples: answer",
            paired::location(&measured.page_ms),
            Bound::AtMost(200.0),
            Unit::Ms,
        ),
        Judged::new(
            "run page of 10 million samples: first figure",
            paired::location(&measured.first_figure_ms),
            Bound::AtMost(1_000.0),
            Unit::Ms,
        ),
        Judged::new(
            "live page: share of a processor that the server uses",
            paired::location(&of(|round| round.one.cpu)),
            Bound::AtMost(0.1),
            Unit::Ratio,
        )
        .with_note(note),
        undisturbed(&alone, &many),
        Judged::new(
            "watching: p99 of the schedule error, 20 pages / none",
            paired::ratio(many.iter().copied().zip(alone.iter().copied())),
            Bound::AtMost(1.25),
            Unit::Ratio,
        ),
    ]
}

/// Watched experiments lie within the interval of those that nothing watches.
fn undisturbed(alone: &[f64], many: &[f64]) -> Judged {
    let goal = "watching: p99 of the schedule error with 20 pages";
    let limit = paired::location(alone).and_then(|alone| alone.high);
    let Some(limit) = limit else {
        let reason = "six rounds are the fewest that support an interval";
        return Judged::unavailable(goal, Bound::AtMost(0.0), Unit::Us, reason);
    };
    let centre = paired::location(many).map(|many| Estimate::exact(many.value));
    let note = "the limit is the upper end of the interval without a page";
    Judged::new(goal, centre, Bound::AtMost(limit), Unit::Us).with_note(Some(note.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Outcome;

    #[test]
    fn goals_are_documented() {
        let judged = judge(&Measured::default(), 1000);
        crate::judge::assert_documented(judged.iter().map(|row| &*row.goal));
    }

    #[test]
    fn disturbance_beyond_the_interval_misses_the_goal() {
        let alone = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0];
        let outcome = |factor: f64| undisturbed(&alone, &alone.map(|p99| p99 * factor)).outcome;
        assert_eq!(outcome(1.0), Outcome::Reached);
        assert_eq!(outcome(1.5), Outcome::Missed);
        assert_eq!(undisturbed(&alone[..5], &alone[..5]).outcome, Outcome::Unavailable);
    }
}
