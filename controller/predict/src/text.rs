//! A model and a prediction as text.

use std::fmt::Write as _;

use crate::delay_fit::{DelayFit, Estimate};
use crate::node_model::NodeModel;
use crate::prediction::{FlowPrediction, FlowState, PathPrediction, Prediction};

/// Maximum number of nodes of a path, and of used nodes, that are printed.
const MAX_LISTED: usize = 12;

/// A time with three significant digits.
fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        size if size >= 1e9 => (ns / 1e9, "s"),
        size if size >= 1e6 => (ns / 1e6, "ms"),
        size if size >= 1e3 => (ns / 1e3, "us"),
        _ => (ns, "ns"),
    };
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}")
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

impl NodeModel {
    /// The model as text.
    pub fn text(&self) -> String {
        let mut text = format!("model of {} from run {} ({})\n", self.node, self.run, self.plan);
        if !self.conditions.is_empty() {
            let conditions: Vec<String> =
                self.conditions.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let _ = writeln!(text, "only trials with {}", conditions.join(", "));
        }
        for (name, mode) in &self.modes {
            let _ = writeln!(text, "{name}: {} to {}", mode.delay_from, mode.delay_to);
            for level in &mode.levels {
                let _ = writeln!(text, "  load {:.0} %: {}", 100.0 * level.load_ratio, line(level));
            }
            if let Some(cost) = &mode.cost {
                let _ = writeln!(
                    text,
                    "  CPU time per packet of 1000 B: {} (from {})",
                    time(cost.of(1_000.0)),
                    cost.source.name()
                );
            }
        }
        let others = [
            ("link, beyond transmission", self.link.as_ref().map(|link| &link.excess)),
            ("sender", self.sender.as_ref()),
            ("receiver", self.receiver.as_ref()),
        ];
        for (name, fit) in others {
            if let Some(fit) = fit {
                let _ = writeln!(text, "{name}: {}", line(fit));
            }
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = write!(text, "intervals: {:.0} %", 100.0 * self.confidence);
        text
    }
}

/// A fit in one line.
fn line(fit: &DelayFit) -> String {
    let interval = |estimate: &Estimate, unit: fn(f64) -> String| {
        let ends = estimate.low.zip(estimate.high);
        ends.map_or(String::new(), |(low, high)| format!(" [{}, {}]", unit(low), unit(high)))
    };
    let per = |ns: f64| format!("{ns:.2}");
    let mut text = format!("{}{}", time(fit.intercept_ns.value), interval(&fit.intercept_ns, time));
    for (estimate, unit) in [(fit.ns_per_byte, "ns/B"), (fit.ns_per_pps, "ns per packet/s")] {
        let Some(estimate) = estimate else { continue };
        let unused = if estimate.used { "" } else { " not used:" };
        let value = per(estimate.value);
        let _ = write!(text, ",{unused} {value}{} {unit}", interval(&estimate, per));
    }
    let residual = &fit.residual_ns;
    let _ = write!(
        text,
        "; residual p50 {}, p95 {}, p99 {}; {} B to {} B, {} to {} packets/s; {}",
        time(residual.at(0.5)),
        time(residual.at(0.95)),
        time(residual.at(0.99)),
        fit.size_bytes.min,
        fit.size_bytes.max,
        fit.rate_pps.min,
        fit.rate_pps.max,
        plural(fit.trials, "trial")
    );
    text
}

impl Prediction {
    /// The prediction as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {}, {}, {}; deadline {} with probability {} %\n",
            self.topology,
            plural(self.node_count, "node"),
            plural(self.link_count, "link"),
            plural(self.flows.len(), "flow"),
            time(self.deadline_ns),
            100.0 * self.probability
        );
        for flow in &self.flows {
            flow.write(&mut text);
        }
        for node in self.nodes.iter().take(MAX_LISTED) {
            let cpu = node.cpu_ratio.map_or("CPU unknown".to_owned(), |share| {
                format!("{:.1} % of its CPU capacity", 100.0 * share)
            });
            let flows = plural(node.flows, "flow");
            let _ = writeln!(text, "{}: {flows}, {} packets/s, {cpu}", node.node, node.rate_pps);
        }
        if let Some(more) = self.nodes.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
            let _ = writeln!(text, "and {}", plural(more, "more relay"));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        let _ = write!(text, "assumed: {}", self.assumptions.join("; "));
        text
    }
}

impl FlowPrediction {
    fn write(&self, text: &mut String) {
        let outcome = match self.state {
            FlowState::Meets => "meets the deadline",
            FlowState::Misses => "MISSES the deadline",
            FlowState::Unreachable => "UNREACHABLE",
            FlowState::AboveCapacity => "NOT PLACED",
        };
        let _ = writeln!(
            text,
            "{}: {} to {}, {} B at {} packets/s: {outcome}",
            self.flow, self.from, self.to, self.size_bytes, self.rate_pps
        );
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "  {reason}");
        }
        if self.chosen.is_none() && self.fewest_hops.is_none() {
            return;
        }
        let _ = writeln!(
            text,
            "  {:12} {:>9} {:>9} {:>9} {:>9}  path",
            "", "p50", "p95", "p99", "in time"
        );
        let rows = [("chosen", &self.chosen), ("fewest hops", &self.fewest_hops)];
        for (name, path) in rows {
            if let Some(path) = path {
                path.write(text, name);
            }
        }
        let paths = plural(self.candidates, "path");
        let all = if self.complete { "all that can meet the deadline" } else { "not all" };
        let _ = writeln!(text, "  examined: {paths}, {all}");
        if let Some(path) = &self.chosen {
            let _ = writeln!(
                text,
                "  resolution: {} (at most {})",
                time(path.resolution_ns),
                time(path.resolution_bound_ns)
            );
            if let Some((low, high)) = path.p95_low_ns.zip(path.p95_high_ns)
                && low < high
            {
                let _ = writeln!(
                    text,
                    "  p95 of a single trial: {} to {} (95 %, as far as trials of the models differ)",
                    time(low),
                    time(high)
                );
            }
            for one in &path.extrapolated {
                let _ = writeln!(
                    text,
                    "  extrapolated: {} of {} is {}, measured {} to {} ({})",
                    one.parameter, one.on, one.value, one.min, one.max, one.model
                );
            }
        }
    }
}

impl PathPrediction {
    fn write(&self, text: &mut String, name: &str) {
        let quantile = |ns: Option<f64>| ns.map_or("-".to_owned(), time);
        let mut nodes = self.nodes.clone();
        if nodes.len() > MAX_LISTED {
            let left_out = nodes.len() - MAX_LISTED;
            nodes.splice(MAX_LISTED / 2..MAX_LISTED / 2 + left_out, [format!("({left_out} more)")]);
        }
        let _ = writeln!(
            text,
            "  {name:12} {:>9} {:>9} {:>9} {:>8.2}%  {}",
            quantile(self.p50_ns),
            quantile(self.p95_ns),
            quantile(self.p99_ns),
            100.0 * self.probability,
            nodes.join(" - ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0.0, "0.00 ns"),
            (999.0, "999 ns"),
            (1_780_000.0, "1.78 ms"),
            (85_240_000.0, "85.2 ms"),
            (123_456.0, "123 us"),
            (-2_500.0, "-2.50 us"),
            (3.2e9, "3.20 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }
}
