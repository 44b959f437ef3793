//! Round trips above a limit, and where their time went: section `spikes` of a summary, and a record
//! per round trip beside the samples.

use std::collections::BTreeMap;

use dwell_host::{Cause, CauseKind, DelayParts};
use serde::{Deserialize, Serialize};

/// Maximum number of spikes that a summary lists.
pub const MAX_SPIKES: usize = 100;

/// Name and version of the JSON object of a spike.
const SCHEMA: &str = "dwell.spike/1";

/// Maximum number of causes that a summary lists.
pub const MAX_CAUSES: usize = 50;

/// Round trips above a limit, and where their time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spikes {
    /// Limit; null with too few replies for one.
    pub above_ns: Option<i64>,
    /// How the limit was chosen.
    pub rule: String,
    /// Source of the causes: `tp_btf` or `proc`.
    pub source: String,
    /// Tracepoints that this kernel lacks.
    pub missing: Vec<String>,
    /// Events of the kernel that were lost.
    pub events_lost: u64,
    /// Number of spikes.
    pub count: u64,
    /// Number of spikes that were divided into parts.
    pub explained: u64,
    /// Mean time of each cause in ordinary round trips.
    pub usual_ns: BTreeMap<CauseKind, i64>,
    /// Sums over the explained spikes, in descending order of time; at most [`MAX_CAUSES`].
    pub causes: Vec<CauseTotal>,
    /// The longest explained spikes, in order of departure; at most [`MAX_SPIKES`].
    pub largest: Vec<Spike>,
}

/// One cause in all explained spikes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseTotal {
    /// Kind.
    pub cause: CauseKind,
    /// Thread, interrupt, softirq or idle state.
    pub by: Option<String>,
    /// Number of spikes with this main cause.
    pub spikes: u64,
    /// Sum of the times.
    pub time_ns: i64,
}

/// One round trip. Its parts sum to `rtt_ns`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spike {
    /// Id of the probe.
    pub id: u64,
    /// `tx_app` on CLOCK_REALTIME.
    pub at_ns: i64,
    /// Round-trip delay.
    pub rtt_ns: i64,
    /// Main cause: the part that exceeds its usual time most.
    pub cause: Cause,
    /// Parts, in the order in which their causes first occurred.
    pub parts: Vec<SpikePart>,
    /// Number of page faults of the measuring thread.
    pub page_faults: u32,
    /// Whether all events were available.
    pub complete: bool,
}

/// Time that one cause took of a spike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpikePart {
    /// Cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// Time.
    pub ns: i64,
}

impl Spikes {
    /// Adds an explained spike to the sums and the list.
    pub fn add(&mut self, spike: Spike) {
        self.explained += 1;
        for part in &spike.parts {
            let total = self.total(&part.cause);
            total.time_ns = total.time_ns.saturating_add(part.ns);
        }
        self.total(&spike.cause).spikes += 1;
        self.largest.push(spike);
    }

    /// Sorts and shortens the lists after the last spike.
    pub fn finish(&mut self) {
        self.causes.sort_by_key(|total| std::cmp::Reverse(total.time_ns));
        self.causes.truncate(MAX_CAUSES);
        self.largest.sort_by_key(|spike| std::cmp::Reverse(spike.rtt_ns));
        self.largest.truncate(MAX_SPIKES);
        self.largest.sort_by_key(|spike| spike.id);
    }

    fn total(&mut self, cause: &Cause) -> &mut CauseTotal {
        let found =
            self.causes.iter().position(|total| total.cause == cause.kind && total.by == cause.by);
        let at = found.unwrap_or_else(|| {
            let (cause, by) = (cause.kind, cause.by.clone());
            self.causes.push(CauseTotal { cause, by, spikes: 0, time_ns: 0 });
            self.causes.len() - 1
        });
        &mut self.causes[at]
    }
}

impl Spike {
    /// Appends the spike as a JSON object on a line of its own. Described by
    /// `docs/schema/dwell.spike-1.schema.json`.
    pub fn append_json(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Line<'a> {
            schema: &'static str,
            #[serde(flatten)]
            spike: &'a Spike,
        }
        let line = Line { schema: SCHEMA, spike: self };
        serde_json::to_writer(&mut *out, &line).expect("a spike has no map with other keys");
        out.push(b'\n');
    }
}

impl SpikePart {
    /// The parts of a window.
    pub fn of(parts: &DelayParts) -> Vec<Self> {
        let part = |part: &dwell_host::Part| Self { cause: part.cause.clone(), ns: part.time.0 };
        parts.parts.iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spike(id: u64, rtt_ns: i64) -> Spike {
        let waiting =
            Cause { kind: CauseKind::Waiting, by: Some("hog".into()), pid: Some(7 + id as u32) };
        let own = Cause::of(CauseKind::Own);
        let parts = vec![
            SpikePart { cause: waiting.clone(), ns: rtt_ns - 10 },
            SpikePart { cause: own, ns: 10 },
        ];
        let (at_ns, cause) = (0, waiting);
        let (page_faults, complete) = (0, true);
        Spike { id, at_ns, rtt_ns, cause, parts, page_faults, complete }
    }

    #[test]
    fn totals_join_threads_of_one_name_and_list_is_bounded() {
        let mut spikes = Spikes::default();
        (0..150).for_each(|id| spikes.add(spike(id, 1_000 + id as i64)));
        spikes.finish();
        assert_eq!((spikes.explained, spikes.largest.len()), (150, MAX_SPIKES));
        assert_eq!(spikes.largest[0].id, 50, "the shortest are left out");
        let [hog, own] = &spikes.causes[..] else { panic!("{:?}", spikes.causes) };
        assert_eq!((hog.by.as_deref(), hog.spikes), (Some("hog"), 150));
        assert_eq!((own.cause, own.spikes, own.time_ns), (CauseKind::Own, 0, 1_500));
    }

    #[test]
    fn part_is_flat_in_json_and_read_back() {
        let text = serde_json::to_string(&spike(1, 30)).unwrap();
        assert!(text.contains(r#"{"cause":"waiting","by":"hog","pid":8,"ns":20}"#), "{text}");
        assert_eq!(serde_json::from_str::<Spike>(&text).unwrap(), spike(1, 30));
    }
}
