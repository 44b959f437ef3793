//! Live table on the terminal: flows, delays and drops so far.

use std::fmt::Write as _;
use std::io::IsTerminal;

use dwell_stats::ComponentFigures;
use dwell_units::Nanos;
use indicatif::{ProgressBar, ProgressStyle};

use super::flows::{Flow, Flows};

/// Maximum number of flows shown, those with the most packets first.
const MAX_ROWS: usize = 8;

/// Table on standard error, if that is a terminal.
pub(super) struct Live {
    bar: Option<ProgressBar>,
}

impl Live {
    pub(super) fn new(is_wanted: bool) -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("the template is constant");
        let is_shown = is_wanted && std::io::stderr().is_terminal();
        Self { bar: is_shown.then(|| ProgressBar::new_spinner().with_style(style)) }
    }

    pub(super) fn is_shown(&self) -> bool {
        self.bar.is_some()
    }

    /// Shows the current state; call it twice per second.
    pub(super) fn show(&self, flows: &Flows, components: &ComponentFigures, dropped: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(table(flows, components, dropped));
        }
    }

    /// Removes the table.
    pub(super) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn table(flows: &Flows, components: &ComponentFigures, dropped: u64) -> String {
    let mut text = format!("{:<52}{:>12}  id\n", "flow", "packets");
    let mut busiest: Vec<_> = flows.all().iter().collect();
    busiest.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
    for Flow { entry, id, packets, .. } in busiest.iter().take(MAX_ROWS) {
        let addresses = format!("{} -> {}", entry.from, entry.to);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{addresses:<52}{packets:>12}  {}", id.name());
    }
    if busiest.len() > MAX_ROWS {
        let _ = writeln!(text, "and {} more", busiest.len() - MAX_ROWS);
    }
    let _ = writeln!(text, "\n{:<28}{:>12}{:>12}{:>12}", "delay [us]", "packets", "p50", "p99");
    let us = |value: Option<Nanos>| {
        value.map_or_else(|| "-".to_owned(), |delay| format!("{:.2}", delay.as_micros_f64()))
    };
    for (component, figures) in components.figures() {
        let name = component.name().trim_end_matches("_ns");
        let (p50, p99) = (us(figures.p50), us(figures.p99));
        let _ = writeln!(text, "{name:<28}{:>12}{p50:>12}{p99:>12}", figures.count);
    }
    let _ = write!(text, "events dropped: {dropped}");
    text
}

#[cfg(test)]
mod tests {
    use dwell_io::bpf::Event;
    use dwell_protocol::IdFormat;
    use dwell_sample::{Point, PointStamps};
    use dwell_units::Instant;

    use super::*;

    #[test]
    fn live_table_shows_busiest_flows_and_delays() {
        let mut flows = Flows::new(IdFormat::Iperf);
        for port in 1..=10_u16 {
            let ends = (([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 5_001).into());
            let at = Instant::from_nanos(0);
            let event = Event::udp(Point::PreRouting, at, ends, 100, &[0; 24]);
            let (stamp, new) = flows.stamp(&event).unwrap();
            assert!(new.is_some());
            (0..port).for_each(|_| flows.count(stamp.flow));
        }
        let mut components = ComponentFigures::default();
        let mut stamps = PointStamps::default();
        stamps.set(Point::PreRouting, Instant::from_nanos(1_000));
        stamps.set(Point::PostRouting, Instant::from_nanos(3_500));
        (0..2).for_each(|_| components.record(&stamps));
        let text = table(&flows, &components, 7);
        assert!(text.contains("10.0.0.1:10 -> 10.0.0.2:5001"), "{text}");
        assert!(!text.contains("10.0.0.1:2 ->") && text.contains("and 2 more"), "{text}");
        assert!(text.contains("node_delay_netfilter"), "{text}");
        assert!(text.contains("2.50") && text.ends_with("events dropped: 7"), "{text}");
    }
}
