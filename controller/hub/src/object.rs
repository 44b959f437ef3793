//! Answers and schedules as JSON, for commands and pages.

use std::collections::BTreeMap;

use dwell_rollup::{DroppedCounts, Name};
use dwell_store::FleetSampleFile;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::collection::collections;
use crate::error::HubError;
use crate::incarnation::{IncarnationState, SimultaneousAgents, simultaneous_agents};
use crate::query::{Answer, DelayFigures, Figures, QUANTILES, Query, measure};
use crate::row::NodeId;
use crate::samples::SampleRequest;
use crate::schedule::NodeCost;
use crate::store::{AppliedSchedule, HubTransaction, StoredNode, StoredStatus};

/// Formats a time as RFC 3339 in UTC, with whole seconds unless there are others.
pub fn time_text(ns: i64) -> String {
    Timestamp::from_nanosecond(ns.into()).map_or_else(|_| ns.to_string(), |time| time.to_string())
}

/// Returns the `dwell.query/1` object.
pub fn query_object(query: &Query, answers: &[Answer]) -> Value {
    let streams: Vec<Value> = answers
        .iter()
        .map(|answer| {
            json!({
                "measure": measure(&answer.stream.stream.entry),
                "entry": answer.stream.stream.entry,
                "protocol": answer.stream.stream.protocol,
                "resolution": answer.resolution.name(),
                "step_ns": answer.step_ns,
                "rows": answer.rows.iter().map(figures_object).collect::<Vec<_>>(),
                "total": figures_object(&answer.total),
            })
        })
        .collect();
    json!({
        "schema": "dwell.query/1",
        "sender": query.sender,
        "reflector": query.reflector,
        "metric": query.metric.name(),
        "streams": streams,
    })
}

fn figures_object(figures: &Figures) -> Value {
    let counts = &figures.counts;
    json!({
        "from": time_text(figures.from_ns),
        "to": time_text(figures.to_ns),
        "packets": {
            "sent": counts.sent,
            "received": counts.received,
            "lost": counts.lost,
            "late": counts.late,
            "duplicate": counts.duplicate,
            "reordered": counts.reordered,
            "send_failed": counts.send_failed,
            "lost_in_pause": figures.lost_in_pause,
        },
        "coverage": figures.coverage,
        "n": figures.delays.as_ref().map_or(0, |delays| delays.n),
        "delays": figures.delays.as_ref().map(delays_object),
        "clock": figures.clock.map(|clock| json!({
            "synchronised": clock.is_synchronised,
            "stepped": clock.was_stepped,
            "one_clock": clock.is_one_clock,
            "bound_ns": clock.bound_ns,
        })),
    })
}

fn delays_object(delays: &DelayFigures) -> Value {
    let percentiles: Map<String, Value> = QUANTILES
        .iter()
        .zip(&delays.percentiles)
        .map(|((name, _), bin)| {
            let bin = bin.map(|bin| json!({ "low_ns": bin.low.0, "high_ns": bin.high.0 }));
            ((*name).to_owned(), bin.unwrap_or_default())
        })
        .collect();
    json!({
        "min_ns": delays.min_ns,
        "mean_ns": delays.mean_ns,
        "max_ns": delays.max_ns,
        "percentiles": percentiles,
        "error_ns": delays.error_ns,
    })
}

/// Returns the `dwell.schedule/1` object: the cost of a schedule. `version` is that of an applied one.
pub fn schedule_object(version: Option<u64>, costs: &BTreeMap<Name, NodeCost>) -> Value {
    let nodes: Vec<Value> = costs
        .iter()
        .map(|(node, cost)| {
            json!({
                "node": node,
                "streams": cost.streams,
                "reflected_streams": cost.reflected_streams,
                "packets_per_second": cost.packets_per_second,
                "bytes_per_day": cost.bytes_per_day,
            })
        })
        .collect();
    json!({ "schema": "dwell.schedule/1", "version": version, "nodes": nodes })
}

/// Returns the `dwell.schedules/1` object: the applied schedules.
pub fn schedules_object(schedules: &[AppliedSchedule]) -> Value {
    let schedules: Vec<Value> = schedules
        .iter()
        .map(|schedule| {
            json!({
                "version": schedule.version,
                "applied": time_text(schedule.applied_ns),
                "author": schedule.author,
                "text": schedule.text,
            })
        })
        .collect();
    json!({ "schema": "dwell.schedules/1", "schedules": schedules })
}

/// Returns the `dwell.hub-samples/1` object: requests for samples, and the files of all samples.
pub fn samples_object(requests: &[SampleRequest], files: &[FleetSampleFile]) -> Value {
    let requests: Vec<Value> = requests
        .iter()
        .map(|request| {
            let of_request = files.iter().filter(|file| request.is_answered_by(&file.about));
            json!({
                "number": request.number,
                "sender": request.sender,
                "reflector": request.reflector,
                "from": time_text(request.from_ns),
                "to": time_text(request.to_ns),
                "requested": time_text(request.requested_ns),
                "author": request.author,
                "state": request.state.name(),
                "gone_before": request.gone_before_ns.map(time_text),
                "files": of_request.count(),
            })
        })
        .collect();
    let files: Vec<Value> = files
        .iter()
        .map(|file| {
            let about = &file.about;
            json!({
                "path": file.path,
                "bytes": file.len,
                "sender": about.sender,
                "reflector": about.reflector,
                "protocol": about.protocol,
                "entry": about.entry,
                "incarnation": about.incarnation,
                "from": time_text(about.from_ns),
                "to": time_text(about.to_ns),
                "samples": about.samples,
            })
        })
        .collect();
    json!({ "schema": "dwell.hub-samples/1", "requests": requests, "files": files })
}

/// What the hub knows about a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The node.
    pub node: StoredNode,
    /// Its incarnations.
    pub incarnations: Vec<IncarnationState>,
    /// Its newest status.
    pub status: Option<StoredStatus>,
    /// Two agents that ran at the same time under its name.
    pub simultaneous: Option<SimultaneousAgents>,
    /// Why a hub collects nothing from it.
    pub collection_fault: Option<String>,
}

impl NodeReport {
    /// Reads what the hub knows about a node.
    ///
    /// # Errors
    /// The database failed.
    pub fn read(transaction: &mut dyn HubTransaction, node: StoredNode) -> Result<Self, HubError> {
        let missing = || HubError::stored("node", "it is missing");
        Self::of(transaction, vec![node])?.pop().ok_or_else(missing)
    }

    fn of(
        transaction: &mut dyn HubTransaction,
        nodes: Vec<StoredNode>,
    ) -> Result<Vec<Self>, HubError> {
        let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let mut incarnations = transaction.incarnations_of_nodes(&ids)?;
        let mut statuses = transaction.last_statuses(&ids)?;
        let faults = collections(transaction)?.into_iter();
        let mut faults: BTreeMap<Name, String> =
            faults.filter_map(|of| Some((of.node, of.fault?))).collect();
        let reports = nodes.into_iter().map(|node| {
            let incarnations = incarnations.remove(&node.id).unwrap_or_default();
            Self {
                simultaneous: simultaneous_agents(&incarnations),
                status: statuses.remove(&node.id),
                incarnations: incarnations.into_iter().map(|(_, state)| state).collect(),
                collection_fault: faults.remove(&node.name),
                node,
            }
        });
        Ok(reports.collect())
    }

    /// Reads what the hub knows about all nodes, by name.
    ///
    /// # Errors
    /// The database failed.
    pub fn read_all(transaction: &mut dyn HubTransaction) -> Result<Vec<Self>, HubError> {
        let nodes = transaction.nodes()?;
        Self::of(transaction, nodes)
    }

    /// Records that are neither stored nor dropped by the node, although later ones are stored.
    pub fn missing(&self) -> u64 {
        self.incarnations.iter().map(IncarnationState::missing).sum()
    }

    /// Roll-ups and statuses that the node dropped.
    pub fn dropped(&self) -> u64 {
        self.incarnations.iter().map(|state| state.dropped.len()).sum()
    }

    /// What a person should look at.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = self.collection_fault.iter().cloned().collect();
        if let Some(found) = &self.simultaneous {
            let [first, second] = &found.incarnations;
            let cause = if found.on_one_kernel {
                "two agents run there at once; stop one"
            } else {
                "two machines use this name, perhaps from one copied card, or its clock was set back; \
                 give each its own name"
            };
            warnings.push(format!("agents {first} and {second} overlap in time: {cause}"));
        }
        let counts = &self.node.counts;
        if counts.bad > 0 {
            warnings.push(format!("{} bad records, kept raw", counts.bad));
        }
        if self.node.undated > 0 {
            let undated = self.node.undated;
            warnings.push(format!(
                "{undated} records without a plausible time: its clock is wrong; synchronise it, such \
                 as by `timedatectl set-ntp true`, and the hub dates them"
            ));
        }
        if self.dropped() > 0 {
            warnings.push(format!("{} records dropped by its full spool", self.dropped()));
        }
        if let Some(stored) = &self.status {
            let status = &stored.status;
            let DroppedCounts { samples, ten_seconds, five_minutes } = status.dropped;
            if status.dropped != DroppedCounts::default() {
                warnings.push(format!(
                    "its spool has dropped {samples} records of samples, {ten_seconds} of 10 s and \
                     {five_minutes} of 5 min since it was created; raise its spool_size"
                ));
            }
            let errors = [
                ("the newest schedule is not in effect", &status.schedule_error),
                ("it does not answer probes", &status.reflector_error),
                ("its spool could not be written", &status.spool_error),
            ];
            let errors = errors.into_iter();
            warnings.extend(errors.filter_map(|(what, reason)| {
                reason.as_ref().map(|reason| format!("{what}: {reason}"))
            }));
            let refused = status.refused.iter();
            warnings
                .extend(refused.map(|it| format!("entry {} is refused: {}", it.entry, it.limit)));
            let faults = status.faults.iter();
            warnings.extend(faults.map(|it| format!("entry {} fails: {}", it.entry, it.reason)));
        }
        warnings
    }
}

/// Returns the `dwell.hub-nodes/1` object.
pub fn nodes_object(reports: &[NodeReport]) -> Value {
    let nodes: Vec<Value> = reports
        .iter()
        .map(|report| {
            let counts = &report.node.counts;
            json!({
                "node": report.node.name,
                "last_arrival": report.node.last_arrival_ns.map(time_text),
                "stored": counts.stored,
                "duplicates": counts.duplicates,
                "expired": counts.expired,
                "bad": counts.bad,
                "undated": report.node.undated,
                "missing": report.missing(),
                "dropped": report.dropped(),
                "schedule_version": report.status.as_ref().map(|it| it.status.schedule_version),
                "paused": report.status.as_ref().is_some_and(|it| it.status.pause.is_some()),
                "warnings": report.warnings(),
            })
        })
        .collect();
    json!({ "schema": "dwell.hub-nodes/1", "nodes": nodes })
}

#[cfg(test)]
mod tests {
    use dwell_rollup::{Incarnation, Refusal, Status, StreamFault};

    use super::*;
    use crate::row::RecordKey;
    use crate::store::Counts;

    #[test]
    fn warnings_name_what_a_person_should_look_at() {
        let node = StoredNode {
            id: NodeId(1),
            name: "a".parse().unwrap(),
            last_arrival_ns: None,
            counts: Counts::default(),
            undated: 0,
        };
        let mut report = NodeReport {
            node,
            incarnations: Vec::new(),
            status: None,
            simultaneous: None,
            collection_fault: None,
        };
        assert_eq!(report.warnings(), Vec::<String>::new());
        report.collection_fault = Some("no agent has run there".to_owned());
        report.node.counts.bad = 2;
        report.node.undated = 3;
        report.incarnations =
            vec![IncarnationState { dropped: "1-4".parse().unwrap(), ..Default::default() }];
        report.simultaneous = Some(SimultaneousAgents {
            incarnations: [Incarnation(1), Incarnation(2)],
            on_one_kernel: true,
        });
        let entry = "mesh+b".parse().unwrap();
        let refused = vec![Refusal { entry, limit: "packets: 9pps".into() }];
        let entry = "mesh+c".parse().unwrap();
        let faults = vec![StreamFault { entry, reason: "no route".into() }];
        report.status = Some(StoredStatus {
            node: NodeId(1),
            key: RecordKey::COMPUTED,
            wall_ns: 0,
            arrival_ns: 0,
            status: Status {
                refused,
                faults,
                dropped: DroppedCounts { samples: 7, ten_seconds: 4, five_minutes: 0 },
                schedule_error: Some("unknown field".to_owned()),
                reflector_error: Some("port 862 is in use".to_owned()),
                spool_error: Some("read-only".to_owned()),
                ..Status::default()
            },
        });
        let warnings = report.warnings();
        for (warning, expected) in warnings.iter().zip([
            "no agent has run there",
            "two agents run there at once",
            "2 bad records",
            "3 records without a plausible time",
            "4 records dropped",
            "dropped 7 records of samples, 4 of 10 s and 0 of 5 min",
            "the newest schedule is not in effect: unknown field",
            "it does not answer probes: port 862 is in use",
            "its spool could not be written: read-only",
            "entry mesh+b is refused: packets: 9pps",
            "entry mesh+c fails: no route",
        ]) {
            assert!(warning.contains(expected), "{warning}");
        }
        assert_eq!((warnings.len(), report.dropped()), (11, 4));
    }
}
