//! Stores a trial: samples of pings and paced packets as received, samples of one-way flows joined
//! across the machines on their path.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dwell_plan::{FlowPlan, Measurement, MeasurementKind, Plan};
use dwell_protocol::{Job, JobId, Scheduling as Requested};
use dwell_record::segment::{self, Record, SegmentEnd, SegmentError};
use dwell_record::{
    Column, Figures, Kind, Placement, Scalar, Scheduling, Summary, Waiting, Warning,
};
use dwell_stats::{ClockRelation, Machine};
use dwell_store::{HostWriter, Ingested, Role, SpikeWriter, TrialRow};

use crate::far_clock::FarClock;
use crate::flow_summary::{self, SummaryInputs};
use crate::incoming::{Incoming, Segment};
use crate::jobs::PlannedJob;
use crate::join::Join;
use crate::links::PathLinks;
use crate::path_clocks::PathClocks;
use crate::runner::{Runner, RunnerError, TrialEnd};
use crate::trial::Outcome;
use crate::trial_clocks::TrialClocks;

const NOTHING_ARRIVED: &str = "no packet arrived at the sink";

const DAMAGED: &str = "its samples were damaged in transfer";

impl Runner<'_> {
    /// Stores a trial.
    pub(crate) fn persist(
        &mut self,
        trial: &TrialRow,
        plan: &Plan,
        mut outcome: Outcome,
        mut incoming: BTreeMap<JobId, Incoming>,
        clocks: &TrialClocks,
    ) -> Result<Option<TrialEnd>, RunnerError> {
        let mut failure = outcome.failure.take();
        if let (true, Some(_), Some(reason)) =
            (outcome.unsupported, plan.measurement.pace(), &failure)
        {
            self.store.end_trial_not_run(trial, reason, &outcome.summaries)?;
            return Ok(Some(TrialEnd::NotRun(reason.clone())));
        }
        let mut segments = Vec::new();
        for (job, planned) in &outcome.pulled {
            match incoming.remove(job).map(Incoming::finish).transpose()?.flatten() {
                Some(segment) => segments.push((planned, segment)),
                None => match planned.without {
                    Some(without) => {
                        let reason = format!("{DAMAGED}; {without}");
                        outcome.refused.push(refused(planned, reason));
                    }
                    None => failure = failure.or(Some(DAMAGED.into())),
                },
            }
        }
        let mut ingested = None;
        let mut far_clock = None;
        let mut host = self.store.host_writer(&self.run, trial)?;
        let mut spikes = self.store.spike_writer(&self.run, trial);
        if let Measurement::Flow(flow) = &plan.measurement {
            store_host_activity(&segments, &mut host)?;
            if failure.is_none() {
                let (joined, damage) = self.join(trial, plan, flow, &segments, &outcome, clocks)?;
                failure = damage;
                if let Some((samples, mut summary)) = joined {
                    summary.environment.placement.far = receiver_placement(&outcome, flow);
                    ingested = Some(samples);
                    prepend_joined_summary(&mut outcome, flow, summary);
                }
            }
        } else if let Some((planned, segment)) =
            segments.iter().find(|(planned, _)| planned.role == Role::Measurement)
        {
            let far = reflector_placement(&outcome);
            let server = server_metrics(&outcome);
            let pinger = outcome.summaries.iter_mut().find(|(role, ..)| *role == Role::Measurement);
            if let Some((_, _, summary)) = pinger {
                let place = &mut summary.environment.placement.far;
                *place = place.take().or(far);
                summary.metrics.extend(server);
            }
            let measurement =
                outcome.summaries.iter().find(|(role, ..)| *role == Role::Measurement);
            let (samples, damage) = match (&plan.measurement, measurement) {
                (Measurement::Pace(_), Some((_, _, sender))) => {
                    self.ingest_departures(trial, planned, segment, sender, &mut host)?
                }
                (Measurement::Ping(ping), _) => {
                    let far = FarClock::of(planned, ping, clocks);
                    let far = far.map(|far| far.checked(segment)).transpose()?;
                    let relation = far.as_ref().and_then(FarClock::relation);
                    let stored = self.ingest(
                        trial,
                        &planned.node,
                        segment,
                        relation,
                        &mut host,
                        &mut spikes,
                    )?;
                    far_clock = far;
                    stored
                }
                _ => self.ingest(trial, &planned.node, segment, None, &mut host, &mut spikes)?,
            };
            ingested = Some(samples);
            failure = failure.or(damage);
        }
        host.finish()?;
        spikes.finish()?;
        let runner_values = std::mem::take(&mut outcome.runner_values);
        if let Some((.., summary)) =
            outcome.summaries.iter_mut().find(|(role, ..)| *role == Role::Measurement)
        {
            summary.values.extend(runner_values);
            summary.values.extend(clocks.values.clone());
            if let (Some(far), Some(samples)) = (far_clock, &ingested) {
                far.complete(summary, samples.columns.figures().0);
            }
            // A joined summary has them already.
            if plan.measurement.kind() != MeasurementKind::Flow {
                summary.trust.warnings.extend(clocks.warnings.iter().cloned());
            }
            summary.values.extend(ingested.iter().flat_map(|samples| samples.columns.intervals()));
        }
        let measured = outcome.summaries.iter().find(|(role, ..)| *role == Role::Measurement);
        if failure.is_none() {
            let summary = measured.map(|(_, _, summary)| summary);
            failure = no_packet_reason(plan, summary, &outcome.summaries).map(str::to_owned);
        }
        let Some(reason) = failure else {
            self.store.end_trial(trial, Ok(()), &outcome.summaries, ingested.as_ref())?;
            if let Some((.., summary)) = measured {
                self.reporter.measured(trial.number, summary);
            }
            return Ok(Some(TrialEnd::Finished));
        };
        self.store.end_trial(trial, Err(&reason), &outcome.summaries, ingested.as_ref())?;
        Ok(Some(TrialEnd::Failed(reason)))
    }

    /// Stores the samples of a ping, its spikes and the host activity of its node. `far_clock` is the
    /// reflector's clock relative to the node's, if it is another one and known. Also returns a
    /// description of the segment's damage, if any.
    fn ingest(
        &mut self,
        trial: &TrialRow,
        node: &str,
        segment: &Segment,
        far_clock: Option<ClockRelation>,
        host: &mut HostWriter,
        spikes: &mut SpikeWriter,
    ) -> Result<(Ingested, Option<String>), RunnerError> {
        let ingest = self.store.ingest(&self.run, trial)?.with_figures();
        let mut ingest = ingest.with_far_clock(far_clock);
        let end = ingest.push_segment_with(&mut segment.open()?, &mut |record| match record {
            Record::Host(sample) => host.push(node, sample),
            Record::Spike(spike) => spikes.push(spike),
            _ => {}
        })?;
        Ok((ingest.finish()?, damage(end).map(|what| format!("its sample segment {what}"))))
    }

    /// Stores the departures of paced packets: the gap before each, and its deviation from the
    /// schedule.
    fn ingest_departures(
        &mut self,
        trial: &TrialRow,
        planned: &PlannedJob,
        segment: &Segment,
        sender: &Summary,
        host: &mut HostWriter,
    ) -> Result<(Ingested, Option<String>), RunnerError> {
        let columns = &Column::PACED;
        let mut ingest = self.store.ingest_columns(&self.run, trial, columns)?.with_figures();
        let end = ingest.push_departures(
            || segment.open(),
            &mut |record| {
                if let Record::Host(sample) = record {
                    host.push(&planned.node, sample);
                }
            },
            || Cow::Borrowed(sender),
        )?;
        Ok((ingest.finish()?, damage(end).map(|what| format!("its sample segment {what}"))))
    }

    /// Joins the samples of all machines and stores them. Also returns a description of the damage,
    /// if any.
    #[expect(clippy::type_complexity, reason = "only one caller uses the result")]
    fn join(
        &mut self,
        trial: &TrialRow,
        plan: &Plan,
        flow: &FlowPlan,
        segments: &[(&PlannedJob, Segment)],
        outcome: &Outcome,
        trial_clocks: &TrialClocks,
    ) -> Result<(Option<(Ingested, Summary)>, Option<String>), RunnerError> {
        let mut join = Join::new(flow.relay.is_some());
        let mut left_out = outcome.refused.clone();
        let path = segments.iter().filter_map(|(planned, _)| {
            Some((path_role(flow, &planned.node)?, planned.node.clone()))
        });
        let clocks = PathClocks::new(path.collect(), trial_clocks.nodes.clone());
        // In path order, because the flows at a machine are identified by those at the machines
        // before it.
        let mut segments: Vec<_> = segments.iter().collect();
        segments.sort_by_key(|(planned, _)| path_position(&planned.job));
        for (planned, segment) in segments {
            let from = &mut segment.open()?;
            let end = match &planned.job {
                Job::Traffic(_) => join.add_sender(from),
                Job::Relay(_) => join.add_relay(from),
                Job::Trace(_) => match path_role(flow, &planned.node) {
                    Some(role) => join.add_trace(role, from),
                    None => continue,
                },
                _ => join.add_receiver(from),
            };
            let Some(what) = damage(end) else { continue };
            let why = format!("its sample segment {what}");
            if planned.without.is_none() {
                let (job, node) = (planned.job.name(), &planned.node);
                return Ok((None, Some(format!("{job} on {node}: {why}"))));
            }
            left_out.push(refused(planned, why));
        }
        let summaries = || outcome.summaries.iter().filter(|(role, ..)| *role != Role::Load);
        let mut join = join.without_first(flow.warm_up as usize);
        let contradicted = !join.correct_clocks(clocks.relations());
        // A step that one machine saw applies to all machines with that clock.
        let on_path = summaries().filter(|(_, node, _)| clocks.contains_clock_of(node));
        let step = flow_summary::clock_step(on_path.map(|(_, _, summary)| &summary.trust));
        if step.is_some() {
            join.invalidate_delays();
        }
        let links = PathLinks::of(plan, flow, &self.fleet.links());
        if links.queue_is_link {
            join.count_queues_as_links();
        }
        let mut ingest =
            self.store.ingest_columns(&self.run, trial, &Column::ONE_WAY)?.with_figures();
        for batch in join.batches() {
            ingest.push(batch)?;
        }
        let ingested = ingest.finish()?;
        let sender = summaries().find(|(role, ..)| *role == Role::Measurement);
        let Some((_, _, sender)) = sender else {
            return Ok((None, Some("the sender reported no summary".into())));
        };
        let inputs = SummaryInputs {
            flow,
            summaries: summaries().map(|(_, node, summary)| (node.as_str(), summary)).collect(),
            sender,
            refused: &left_out,
            step,
            links,
            unrelated: &clocks.unrelated(),
            distinct: &clocks.distinct(),
            contradicted,
            clock_warnings: &trial_clocks.warnings,
        };
        let summary = flow_summary::summary(&join, &inputs, ingested.columns.figures());
        Ok((Some((ingested, summary)), None))
    }
}

/// Returns why a trial without any received packet failed; `None` if there is one.
fn no_packet_reason(
    plan: &Plan,
    measured: Option<&Summary>,
    summaries: &[(Role, String, Summary)],
) -> Option<&'static str> {
    let packets = measured.and_then(|summary| summary.packets);
    let arrived = packets.map_or(0, |packets| packets.received + packets.late);
    // Without a sink only the number of sent packets is known.
    let left = measured.and_then(|summary| summary.values.get("packets").copied().flatten());
    let sent = packets.map_or(left.map_or(0.0, Scalar::as_f64), |packets| packets.sent as f64);
    match plan.measurement.kind() {
        MeasurementKind::Ping => (arrived == 0).then_some("no reply arrived"),
        MeasurementKind::Flow => (arrived == 0).then_some("no packet arrived"),
        MeasurementKind::Pace if sent == 0.0 => Some("no packet left"),
        MeasurementKind::Pace if packets.is_some() => (arrived == 0).then_some(NOTHING_ARRIVED),
        MeasurementKind::Pace if measured.is_some_and(requested_sink_stamps) => {
            Some("the sink did not report what arrived")
        }
        // The sink counts packets even if the sender did not query it.
        MeasurementKind::Pace => summaries
            .iter()
            .any(|(.., summary)| received_nothing(summary))
            .then_some(NOTHING_ARRIVED),
    }
}

/// Whether the sender requested timestamps from its sink.
fn requested_sink_stamps(sender: &Summary) -> bool {
    sender.parameters.get("sink").is_some_and(|sink| sink == true)
}

/// Whether this is a sink of paced packets that received none, including packets dropped by its
/// kernel.
fn received_nothing(summary: &Summary) -> bool {
    let count = |name: &str| summary.values.get(name).copied().flatten().map(Scalar::as_f64);
    let is_sink = summary.parameters.get("role").is_some_and(|role| role == "sink");
    let all = ["packets", "lead_packets", "unread_packets", "overflowed_packets"].map(count);
    summary.kind == Kind::Pace && is_sink && all.iter().all(|count| *count == Some(0.0))
}

/// Stores the host activity in the segments. Jobs of one node record the same activity; only the
/// first segment with host activity is used.
fn store_host_activity(
    segments: &[(&PlannedJob, Segment)],
    host: &mut HostWriter,
) -> Result<(), RunnerError> {
    let mut stored: Vec<&str> = Vec::new();
    for (planned, segment) in segments {
        if stored.contains(&planned.node.as_str()) {
            continue;
        }
        let mut any = false;
        // Damage is reported when the observations are joined.
        let _ = segment::read(&mut segment.open()?, &mut |record| {
            if let Record::Host(sample) = record {
                any = true;
                host.push(&planned.node, sample);
            }
        });
        if any {
            stored.push(&planned.node);
        }
    }
    Ok(())
}

/// Puts the joined summary before those of the machines, and makes the sender one of these.
fn prepend_joined_summary(outcome: &mut Outcome, flow: &FlowPlan, summary: Summary) {
    let senders = outcome.summaries.iter_mut().filter(|(role, ..)| *role == Role::Measurement);
    senders.for_each(|(role, ..)| *role = Role::Server);
    let nodes = format!("{} to {}", flow.from, flow.to);
    outcome.summaries.insert(0, (Role::Measurement, nodes, summary));
}

/// Returns the placement that the flow's receiver reported.
fn receiver_placement(outcome: &Outcome, flow: &FlowPlan) -> Option<Placement> {
    let port = format!(":{}", flow.port);
    let is_receiver = |node: &str, summary: &Summary| {
        node == flow.to && summary.kind == Kind::Load && summary.target.ends_with(&port)
    };
    let mut servers = outcome.summaries.iter().filter(|(role, ..)| *role == Role::Server);
    let (_, _, summary) = servers.find(|(_, node, summary)| is_receiver(node, summary))?;
    Some(summary.environment.placement.near.clone())
}

/// Returns the metrics that a reflector of this trial measured, which belong to its probes. Those
/// that pings have too stay with the reflector.
fn server_metrics(outcome: &Outcome) -> BTreeMap<String, Figures> {
    const SERVER_METRICS: [&str; 2] = ["server_lag_ns", "service_ns"];
    let reflectors = outcome.summaries.iter().filter(|(.., it)| it.kind == Kind::Reflect);
    let metrics = reflectors.flat_map(|(.., summary)| summary.metrics.clone());
    metrics.filter(|(name, _)| SERVER_METRICS.contains(&name.as_str())).collect()
}

/// Returns the placement of the ping's reflector: as reported, or as requested. A reflector that
/// continues from trial to trial reports only at its end, but it would not have started with another
/// placement.
fn reflector_placement(outcome: &Outcome) -> Option<Placement> {
    let reported = outcome.summaries.iter().find(|(.., summary)| summary.kind == Kind::Reflect);
    if let Some((.., summary)) = reported {
        return Some(summary.environment.placement.near.clone());
    }
    let place = outcome.standing.iter().find_map(|(_, planned)| match &planned.job {
        Job::Reflect(job) => Some(job.place),
        _ => None,
    })?;
    Some(Placement {
        cpu: place.cpu.map(|cpu| cpu as u32),
        waiting: Some(if place.busy_poll { Waiting::Polling } else { Waiting::Blocking }),
        scheduling: match place.scheduling {
            Requested::Auto => None,
            Requested::Other => Some(Scheduling::Other),
            Requested::Fifo => Some(Scheduling::Fifo),
        },
    })
}

/// Returns the position of a job along the flow.
fn path_position(job: &Job) -> u8 {
    match job {
        Job::Traffic(_) => 0,
        Job::Relay(_) => 1,
        Job::Trace(_) => 2,
        _ => 3,
    }
}

/// Returns the role of a node along the flow; `None` if it is not part of the flow.
fn path_role(flow: &FlowPlan, node: &str) -> Option<Machine> {
    let relay = flow.relay.as_ref().map(|relay| relay.on.as_str());
    match node {
        node if node == flow.from => Some(Machine::Sender),
        node if node == flow.to => Some(Machine::Receiver),
        node if relay.is_none_or(|relay| relay == node) => Some(Machine::Node),
        _ => None,
    }
}

/// Returns the warning that the trial continued without a job.
fn refused(planned: &PlannedJob, reason: String) -> Warning {
    Warning::JobRefused(planned.job.name(), planned.node.clone(), reason)
}

/// Describes the damage of a segment, if any.
fn damage(end: Result<SegmentEnd, SegmentError>) -> Option<String> {
    match end {
        Ok(end) if end.totals.is_none() => Some("is truncated".into()),
        Ok(end) if end.damaged > 0 => Some(format!("has {} damaged frames", end.damaged)),
        Ok(_) => None,
        Err(error) => Some(format!("is unreadable: {error}")),
    }
}
