//! Round trips that are used to measure distances.

use super::Found;
use crate::finding::{Finding, quantity};
use crate::table::Table;
use crate::unit::Unit;

/// Speed of light in vacuum, in metres per second.
pub(crate) const LIGHT_SPEED: f64 = 299_792_458.0;

/// Converts the spread of round trips to distances. `speed` is that of the signal, in metres per
/// second.
pub(crate) fn check(table: &Table, speed: f64, found: &mut Found) {
    let column = table.main().and_then(|column| Some((column, column.unit?)));
    let Some((column, unit)) = column else {
        found.cannot_tell("range-spread", &table.name, "there is no round trip in a known unit");
        return;
    };
    let (Some(min), Some(max)) = (column.totals.min, column.totals.max) else { return };
    let metres = |value: f64| value * unit.to(Unit::Seconds) * speed / 2.0;
    let spread = metres(max.value - min.value);
    let n = column.totals.count as f64;
    let sd = metres((column.totals.deviations() / (n - 1.0).max(1.0)).sqrt());
    let step = metres(column.totals.fine_step());
    let shown = |metres: f64| {
        // Two digits: a spread of a few round trips is not known better.
        let digits = 1 - metres.abs().max(f64::MIN_POSITIVE).log10().floor() as i32;
        let scale = 10_f64.powi(digits.clamp(-12, 12));
        let rounded = (metres * scale).round() / scale;
        if rounded >= 1_000.0 { quantity(rounded / 1_000.0, "km") } else { quantity(rounded, "m") }
    };
    let message = format!(
        "the round trips of {} spread over {}, which is {} of distance (standard deviation {}, one step of \
         the printed values {})",
        column.name,
        quantity(max.value - min.value, unit.name()),
        shown(spread),
        shown(sd),
        shown(step)
    );
    let finding = Finding::note("range-spread", message).rows([min.row, max.row]);
    found.push(finding.value(spread / 1_000.0, "km").column(&column.name).table(&table.name));
}
