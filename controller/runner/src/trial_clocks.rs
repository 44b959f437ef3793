//! Clocks of the nodes during a trial, from exchanges at its start, at its end and between.

use std::collections::BTreeMap;

use dwell_fleet::{ClockDomain, ClockReadings, Fleet, Nodes, TrialEdge};
use dwell_record::{Scalar, TrustWarning, Warning, clock_value};
use dwell_stats::{ClockBounds, ClockExchange, RateAssumption};

/// Values of a summary, by name.
type Values = BTreeMap<String, Option<Scalar>>;

/// Exchanges with the clocks of the nodes at the start of a trial.
pub(crate) struct StartedClocks(BTreeMap<String, ClockReadings>);

/// Clocks of the nodes during a trial.
#[derive(Debug)]
pub(crate) struct TrialClocks {
    /// The nodes, with the relations of their clocks as far as these are known.
    pub(crate) nodes: Nodes,
    /// Values of the trial's summary.
    pub(crate) values: Values,
    /// Warnings about clocks without bounds.
    pub(crate) warnings: Vec<TrustWarning>,
}

impl StartedClocks {
    /// Exchanges requests with the clocks of all nodes.
    pub(crate) fn measure(fleet: &mut dyn Fleet) -> Self {
        Self(fleet.measure_clocks(TrialEdge::Start))
    }

    /// Exchanges requests with the clocks again, and computes their bounds during the trial.
    pub(crate) fn end(self, fleet: &mut dyn Fleet) -> TrialClocks {
        let mut after = fleet.measure_clocks(TrialEdge::End);
        let mut clocks = TrialClocks::unknown(fleet.nodes());
        let mut domains: BTreeMap<ClockDomain, Exchanges> = BTreeMap::new();
        for (node, before) in self.0 {
            clocks.record_state(&node, &before);
            let after = after.remove(&node).unwrap_or_default();
            // Bounds hold between exchanges only, so a trial needs some at both of its ends.
            let exchanges = if before.burst.is_empty() || after.burst.is_empty() {
                Vec::new()
            } else {
                before.burst.into_iter().chain(after.between).chain(after.burst).collect()
            };
            let domain = clocks.proven_domain(&node, &exchanges);
            domains.entry(domain).or_default().insert(node, exchanges);
        }
        for (domain, exchanges) in domains {
            clocks.record_bounds(domain, exchanges);
        }
        clocks
    }
}

/// Exchanges with one clock, by node.
type Exchanges = BTreeMap<String, Vec<ClockExchange>>;

impl TrialClocks {
    /// Returns clocks without any measurement.
    pub(crate) fn unknown(nodes: Nodes) -> Self {
        Self { nodes, values: Values::new(), warnings: Vec::new() }
    }

    /// Returns the clock of a node. A boot id alone proves nothing: the copy of a running virtual machine
    /// has that of the original. A node without exchanges has a clock of its own, and so has a node of
    /// the controller's kernel whose exchanges show other clocks.
    fn proven_domain(&mut self, node: &str, exchanges: &[ClockExchange]) -> ClockDomain {
        let domain = self.nodes.clock_domain(node);
        let is_proven = domain != ClockDomain::controller()
            || exchanges.iter().all(ClockExchange::permits_equal_clocks);
        if is_proven && !exchanges.is_empty() { domain } else { self.separate(node) }
    }

    /// Gives a node a clock of its own, and returns it.
    fn separate(&mut self, node: &str) -> ClockDomain {
        let own = ClockDomain::of_node(node);
        self.nodes = std::mem::take(&mut self.nodes).with_clock(node, own.clone());
        own
    }

    fn record_bounds(&mut self, domain: ClockDomain, exchanges: Exchanges) {
        if domain == ClockDomain::controller() {
            for node in exchanges.keys() {
                self.insert(node, "error_ns", Some(Scalar::Count(0)));
            }
            return;
        }
        let all: Vec<_> = exchanges.values().flatten().copied().collect();
        match ClockBounds::of(&all) {
            Ok(bounds) => {
                exchanges.keys().for_each(|node| self.record_relation(node, &bounds));
                let nodes = std::mem::take(&mut self.nodes);
                self.nodes = nodes.with_relation(domain, bounds.relation);
            }
            // Copies of a virtual machine have one boot id, but not one clock.
            Err(_) if exchanges.len() > 1 => {
                for (node, exchanges) in exchanges {
                    let own = self.separate(&node);
                    self.record_bounds(own, [(node, exchanges)].into());
                }
            }
            Err(fault) => {
                for node in exchanges.into_keys() {
                    self.insert(&node, "error_ns", None);
                    self.warnings.push(Warning::ClockUnbounded(node, fault.to_string()).into());
                }
            }
        }
    }

    fn record_relation(&mut self, node: &str, bounds: &ClockBounds) {
        let count = |nanos: i64| Some(Scalar::Count(nanos.unsigned_abs()));
        let real = |value: f64| Some(Scalar::Real(value));
        let relation = &bounds.relation;
        let steady = bounds.assumption == RateAssumption::Steady;
        let values = [
            ("at_ns", count(relation.at.as_nanos())),
            ("offset_ns", real(relation.offset.0 as f64)),
            ("error_ns", count(relation.error.0)),
            ("rate_ppm", real(relation.rate * 1e6)),
            ("rate_error_ppm", real(bounds.rate_error * 1e6)),
            ("steady", Some(Scalar::Count(steady.into()))),
            ("exchanges", Some(Scalar::Count(bounds.exchanges as u64))),
            ("min_round_trip_ns", count(bounds.min_round_trip.0)),
        ];
        values.into_iter().for_each(|(name, value)| self.insert(node, name, value));
    }

    /// Records the kernel's and the daemons' own statements about a clock.
    fn record_state(&mut self, node: &str, readings: &ClockReadings) {
        let Some(state) = &readings.state else { return };
        let nanos = |nanos: i64| Some(Scalar::Real(nanos as f64));
        if let Some(kernel) = &state.kernel {
            let error = nanos(kernel.max_error_ns).filter(|_| kernel.synchronised);
            self.insert(node, "kernel_error_ns", error);
            self.insert(node, "frequency_ppm", Some(Scalar::Real(kernel.frequency_ppm)));
        }
        if let Some(chrony) = &state.chrony {
            self.insert(node, "chrony_error_ns", nanos(chrony.error_ns));
            self.insert(node, "chrony_stratum", Some(Scalar::Count(chrony.stratum.into())));
        }
        if let Some(ptp) = &state.ptp {
            self.insert(node, "ptp_offset_ns", nanos(ptp.offset_ns));
        }
    }

    fn insert(&mut self, node: &str, quantity: &str, value: Option<Scalar>) {
        self.values.insert(clock_value(node, quantity), value);
    }
}
