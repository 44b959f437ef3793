//! The reflector's clock in a trial of round trips: one-way delays between two clocks exist only with
//! the bound of their relation.

use std::collections::BTreeMap;

use dwell_plan::PingPlan;
use dwell_record::segment::{self, Record};
use dwell_record::{Figures, Scalar, Summary, Warning, clock_error_value};
use dwell_stats::{ClockRelation, Delays, Metric};
use dwell_units::Nanos;

use crate::incoming::Segment;
use crate::jobs::PlannedJob;
use crate::runner::RunnerError;
use crate::trial_clocks::TrialClocks;

const ONE_WAY: [Metric; 2] = [Metric::OneWayForward, Metric::OneWayBackward];

/// The reflector's clock, which is not that of the measuring node.
#[derive(Debug)]
pub(crate) struct FarClock {
    /// The measuring node and that of the reflector.
    nodes: String,
    /// The reflector's clock relative to the measuring node's.
    relation: ClockRelation,
    /// Whether samples contradict the relation.
    contradicted: bool,
}

impl FarClock {
    /// Returns `None` if both nodes have one clock, or the relation of their clocks is unknown.
    pub(crate) fn of(planned: &PlannedJob, ping: &PingPlan, clocks: &TrialClocks) -> Option<Self> {
        let relation = clocks.nodes.clock_relation(&planned.node, &ping.to)?;
        let nodes = format!("{} and {}", planned.node, ping.to);
        relation.error.is_positive().then_some(Self { nodes, relation, contradicted: false })
    }

    /// Compares the relation with all samples: no packet arrives before it was sent.
    pub(crate) fn checked(mut self, segment: &Segment) -> Result<Self, RunnerError> {
        // Damage is reported when the samples are stored.
        let _ = segment::read(&mut segment.open()?, &mut |record| {
            let Record::Sample(sample, bridge, near) = record else { return };
            let delays = Delays::of(sample, bridge, near).with_far_clock(sample, &self.relation);
            let both = [delays.one_way_forward, delays.one_way_backward];
            let error = self.relation.error;
            self.contradicted |=
                both.iter().flatten().any(|delay| delay.saturating_add(error) < Nanos::ZERO);
        });
        Ok(self)
    }

    /// Returns the relation; `None` if samples contradict it.
    pub(crate) fn relation(&self) -> Option<ClockRelation> {
        (!self.contradicted).then_some(self.relation)
    }

    /// Completes the node's summary with one-way delays, of the figures of the stored samples.
    pub(crate) fn complete(self, summary: &mut Summary, mut stored: BTreeMap<String, Figures>) {
        if self.contradicted {
            return summary.trust.warn(Warning::ImpossibleDelays(self.nodes));
        }
        let mut any = false;
        for metric in ONE_WAY {
            let name = metric.name();
            let Some(figures) = stored.remove(name) else { continue };
            any = true;
            summary.metrics.insert(name.to_owned(), figures);
            let error = Scalar::Count(self.relation.error.0.unsigned_abs());
            summary.values.insert(clock_error_value(name), Some(error));
        }
        if any {
            let error = self.relation.error.to_string();
            summary.trust.warn(Warning::BoundedClocks(self.nodes, error));
        }
    }
}
