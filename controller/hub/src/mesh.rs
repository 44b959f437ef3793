//! The fleet at once: every stream with its figures of the last hour or day.

use std::collections::{BTreeMap, BTreeSet};

use dwell_rollup::{Name, NodeSchedule, Stream};

use crate::coverage::{ExpectedProbes, FleetHistory};
use crate::error::HubError;
use crate::period::{DAY_NS, SECOND_NS};
use crate::row::{NodeId, StreamId};
use crate::store::{HubTransaction, SentStream};
use crate::window::{Window, WindowFigures};

/// Age of the newest interval above which a window is no longer current. A row of 5 min arrives within
/// 6 min of its end.
pub const MAX_CURRENT_NS: i64 = 20 * 60 * SECOND_NS;

/// Time after the end of an interval by which its records have arrived, as on the page of a pair.
const ARRIVAL_NS: i64 = 11 * 60 * SECOND_NS;

/// Age of the newest interval above which a stream is not in the mesh.
pub const MAX_SHOWN_NS: i64 = 7 * DAY_NS;

/// All streams at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// The window of the figures.
    pub window: Option<Window>,
    /// Streams with a window, or with a place in the newest schedule, in ascending order.
    pub streams: Vec<MeshStream>,
    /// Nodes whose last status reports a pause.
    pub paused: BTreeSet<Name>,
    /// Number of streams that are left out, because their last interval is too old.
    pub hidden: u64,
}

/// A stream of the mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshStream {
    /// The node that sends the probes.
    pub sender: Name,
    /// Reflector, protocol and schedule entry.
    pub stream: Stream,
    /// Its figures; `None` if the hub has none yet.
    pub figures: Option<MeshFigures>,
    /// Its probes of the last hour or day, also if nothing arrived; `None` if none were due.
    pub coverage: Option<ProbeCoverage>,
}

/// Probes of a stream in the last hour or day whose records should have arrived.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeCoverage {
    /// Number of probes that were due.
    pub due: f64,
    /// Number of them that are in the rows. The probes of a window that ended early count as even over
    /// its time.
    pub measured: f64,
}

impl ProbeCoverage {
    /// Returns the coverage in [from, to), or in the window if that ends later; `None` if no probe was due.
    fn new(
        expected: &ExpectedProbes,
        window: Option<&WindowFigures>,
        (from_ns, to_ns): (i64, i64),
    ) -> Option<Self> {
        let current = window.filter(|window| window.to_ns >= to_ns);
        let (start, end) = current.map_or((from_ns, to_ns), |it| (it.from_ns, it.to_ns));
        let due = expected.in_span(start, end).filter(|due| *due > 0.0)?;
        let measured = window.map_or(0.0, |window| {
            let outside_ns = start.saturating_sub(window.from_ns);
            let length_ns = window.to_ns.saturating_sub(window.from_ns).max(1);
            let share = 1.0 - outside_ns as f64 / length_ns as f64;
            window.counts.due() as f64 * share.clamp(0.0, 1.0)
        });
        Some(Self { due, measured: measured.min(due) })
    }
}

/// Figures of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshFigures {
    /// Figures of its window.
    pub window: WindowFigures,
    /// Number of probes that were due in the window; `None` if no schedule has the stream, or the
    /// window is not recent.
    pub due: Option<f64>,
    /// Lost probes that the paused reflector explains; `None` if unknown, because the window is not
    /// recent.
    pub lost_in_pause: Option<u64>,
    /// Maximum error of its one-way delays in nanoseconds; `None` if unknown, or the window is not
    /// recent.
    pub error_ns: Option<u64>,
}

impl MeshFigures {
    /// Whether the newest interval is so recent that the figures are those of the time `now_ns`.
    pub const fn is_current(&self, now_ns: i64) -> bool {
        now_ns.saturating_sub(self.window.to_ns) <= MAX_CURRENT_NS
    }

    /// Share of due probes that are in the rows, from 0 to 1; `None` if unknown or none were due.
    pub fn coverage(&self) -> Option<f64> {
        let due = self.due.filter(|due| *due > 0.0)?;
        // The phase of a stream is random, so a probe more or less is due.
        Some((self.window.counts.due() as f64 / due).min(1.0))
    }

    /// Whether the reflector was paused all the time, so that neither delays nor loss are known.
    pub fn is_paused(&self) -> bool {
        let counts = &self.window.counts;
        // The phase of a stream is random, so a probe more or less is due.
        self.lost_in_pause.is_some_and(|lost| lost > 0 && counts.sent.saturating_sub(lost) <= 1)
    }

    /// Number of probes that were lost without a pause of the reflector; `None` if unknown.
    pub fn lost(&self) -> Option<u64> {
        match self.window.counts.lost {
            0 => Some(0),
            lost => Some(lost.saturating_sub(self.lost_in_pause?)),
        }
    }

    /// Share of probes that were lost without a pause of the reflector; `None` if unknown, or without
    /// probes.
    pub fn loss(&self) -> Option<f64> {
        if self.is_paused() {
            return None;
        }
        let sent = self.window.counts.sent.saturating_sub(self.lost_in_pause.unwrap_or(0));
        (sent > 0).then_some(self.lost()? as f64 / sent as f64)
    }
}

/// Returns the mesh.
///
/// # Errors
/// The database failed.
pub fn mesh(
    transaction: &mut dyn HubTransaction,
    window: Window,
    now_ns: i64,
) -> Result<Mesh, HubError> {
    let known = transaction.streams(None)?;
    let mut figures: BTreeMap<StreamId, WindowFigures> =
        transaction.windows(window, None)?.into_iter().collect();
    let mut missing = scheduled(transaction)?;
    let mut mesh = Mesh { window: Some(window), ..Mesh::default() };
    let nodes = transaction.nodes()?;
    let statuses =
        transaction.last_statuses(&nodes.iter().map(|node| node.id).collect::<Vec<_>>())?;
    let is_paused =
        |id: &NodeId| statuses.get(id).is_some_and(|stored| stored.status.pause.is_some());
    mesh.paused =
        nodes.into_iter().filter(|node| is_paused(&node.id)).map(|node| node.name).collect();
    let of_known = known.iter().map(|sent| (&sent.sender, &sent.stream));
    let of_schedule = missing.iter().map(|(sender, stream)| (sender, stream));
    let names: BTreeSet<Name> = of_known
        .chain(of_schedule)
        .flat_map(|(sender, stream)| [sender.clone(), stream.reflector.clone()])
        .collect();
    // One stream that ended long ago must not demand the history of all nodes since then.
    let from_ns = now_ns.saturating_sub(window.length_ns()).saturating_sub(MAX_CURRENT_NS);
    let history = FleetHistory::read(transaction, &names, (from_ns, now_ns))?;
    let arrived_ns = now_ns.saturating_sub(ARRIVAL_NS);
    let arrived = (arrived_ns.saturating_sub(window.length_ns()), arrived_ns);
    for SentStream { id, sender, stream } in known {
        let of_schedule = (sender, stream);
        let is_scheduled = missing.remove(&of_schedule);
        let (sender, stream) = of_schedule;
        let figures = match figures.remove(&id) {
            Some(of) if is_hidden(&of, now_ns) => {
                mesh.hidden += 1;
                None
            }
            of => of,
        };
        if figures.is_none() && !is_scheduled {
            continue;
        }
        let expected = history.expected(&sender, &stream);
        let coverage = ProbeCoverage::new(&expected, figures.as_ref(), arrived);
        let figures = figures.map(|of| {
            if of.from_ns < from_ns {
                MeshFigures { window: of, due: None, lost_in_pause: None, error_ns: None }
            } else {
                measured(&expected, &history, &stream, of)
            }
        });
        mesh.streams.push(MeshStream { sender, stream, figures, coverage });
    }
    for (sender, stream) in missing {
        let expected = history.expected(&sender, &stream);
        let coverage = ProbeCoverage::new(&expected, None, arrived);
        mesh.streams.push(MeshStream { sender, stream, figures: None, coverage });
    }
    mesh.streams.sort_unstable_by(|a, b| (&a.sender, &a.stream).cmp(&(&b.sender, &b.stream)));
    Ok(mesh)
}

const fn is_hidden(figures: &WindowFigures, now_ns: i64) -> bool {
    now_ns.saturating_sub(figures.to_ns) > MAX_SHOWN_NS
}

fn measured(
    expected: &ExpectedProbes,
    history: &FleetHistory,
    stream: &Stream,
    window: WindowFigures,
) -> MeshFigures {
    let (from_ns, to_ns) = (window.from_ns, window.to_ns);
    let due = expected.in_span(from_ns, to_ns);
    let unanswerable = expected.unanswerable(from_ns, to_ns).round() as u64;
    let lost_in_pause = Some(unanswerable.min(window.counts.lost));
    let error_ns = history.error_ns(&window.clock, &stream.reflector, from_ns, to_ns);
    MeshFigures { window, due, lost_in_pause, error_ns }
}

/// Returns the streams of the newest schedule, also of senders without any record.
fn scheduled(transaction: &mut dyn HubTransaction) -> Result<BTreeSet<(Name, Stream)>, HubError> {
    let mut streams = BTreeSet::new();
    let Some(version) = transaction.newest_version()? else { return Ok(streams) };
    for (sender, json) in transaction.node_schedules(version, None)? {
        let part = NodeSchedule::from_json(json.as_bytes())
            .map_err(|error| HubError::stored("schedule", error))?;
        for entry in part.entries {
            let Ok(protocol) = entry.scheme().parse() else { continue };
            let stream = Stream { reflector: entry.reflector, protocol, entry: entry.name };
            streams.insert((sender.clone(), stream));
        }
    }
    Ok(streams)
}
