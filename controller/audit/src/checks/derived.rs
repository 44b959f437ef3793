//! Columns and results that should follow from others by a formula.

use super::Found;
use crate::document::{Derived, PrintedFormula};
use crate::expression::{Bounds, Value};
use crate::finding::{Finding, counted, number, quantity, row_list};
use crate::printed::Reading;
use crate::scope::TableScope;
use crate::table::{Content, Table};
use crate::unit::Unit;

/// Maximum number of rows that have a finding each.
const MAX_SINGLE_FINDINGS: usize = 10;

/// Checks a column whose values should follow from others in each row.
pub(crate) fn column(tables: &[Table], derived: &Derived, found: &mut Found) {
    let code = "derived-contradicts-row";
    let table = match &derived.table {
        Some(name) => tables.iter().find(|table| table.name == *name),
        None => tables.first(),
    };
    let Some(table) = table else { return };
    let target = table.column(&derived.column).filter(|column| column.content == Content::Number);
    let Some(target) = target else {
        let text = format!("there is no column of numbers named '{}'", derived.column);
        found.cannot_tell(code, &table.name, text);
        return;
    };
    let scope = TableScope { tables, table: Some(table), unit: target.unit };
    let values = match derived.expression.evaluate(&scope) {
        Ok(Value::Column(values)) if values.len() == target.values.len() => values,
        Ok(Value::Column(values)) => {
            let text = format!(
                "{} has {} values for {} rows",
                derived.text,
                values.len(),
                target.values.len()
            );
            found.cannot_tell(code, &table.name, text);
            return;
        }
        Ok(Value::Scalar(bounds)) => std::rc::Rc::new(vec![bounds; target.values.len()]),
        Err(error) => {
            found.cannot_tell(code, &table.name, format!("{}: {error}", derived.text));
            return;
        }
    };
    let step = target.totals.coarse_step();
    let wrong: Vec<(u64, Bounds, f64)> = target
        .values
        .iter()
        .zip(values.iter())
        .enumerate()
        .filter(|(_, (printed, bounds))| !printed.is_nan() && !bounds.is_nan())
        .filter(|(_, (printed, bounds))| {
            let reading = Reading { value: **printed, step, tolerance: 0.0 };
            !reading.allows(bounds.low, bounds.high)
        })
        .map(|(row, (printed, bounds))| (table.row_number(row), *bounds, *printed))
        .collect();
    let unit = target.unit_name();
    let complete = |finding: Finding| finding.column(&target.name).table(&table.name);
    if wrong.len() <= MAX_SINGLE_FINDINGS {
        for (row, bounds, printed) in wrong {
            let value = bounds.middle();
            let message = format!(
                "row {row}: {} is {}, printed {}",
                derived.text,
                quantity(value, unit),
                number(printed, 9)
            );
            let finding = Finding::serious(code, message).rows([row]).value(value, unit);
            found.push(complete(finding.printed(printed)));
        }
        return;
    }
    let rows: Vec<u64> = wrong.iter().map(|(row, ..)| *row).collect();
    let (row, bounds, printed) = wrong[0];
    let message = format!(
        "{} of {} disagree with {}: {}; row {row}: {}, printed {}",
        counted(wrong.len() as u64, "row"),
        target.values.len(),
        derived.text,
        row_list(&rows),
        quantity(bounds.middle(), unit),
        number(printed, 9)
    );
    let finding = Finding::serious(code, message).rows(rows).value(bounds.middle(), unit);
    found.push(complete(finding.printed(printed)));
}

/// Checks a printed result that should follow from columns by a formula.
pub(crate) fn result(tables: &[Table], result: &PrintedFormula, found: &mut Found) {
    let code = "result-contradicts-rows";
    let table = result.table.as_ref().and_then(|name| tables.iter().find(|t| t.name == *name));
    let scope = TableScope { tables, table, unit: result.printed.unit };
    let name = table.map_or("", |table| table.name.as_str());
    let bounds = match result.expression.scalar(&scope) {
        Ok(bounds) if bounds.low.is_finite() && bounds.high.is_finite() => bounds,
        Ok(_) => {
            found.cannot_tell(code, name, format!("{}: {} has no value", result.name, result.text));
            return;
        }
        Err(error) => {
            found.cannot_tell(code, name, format!("{}: {error}", result.name));
            return;
        }
    };
    let agrees = |factor: f64| {
        result
            .printed
            .readings
            .iter()
            .any(|reading| reading.scaled(factor).allows(bounds.low, bounds.high))
    };
    // A ratio printed in percent.
    if agrees(1.0) || (result.printed.percent && agrees(0.01)) {
        return;
    }
    let unit = result.printed.unit.map_or("", Unit::name);
    let value = bounds.middle();
    let message = format!(
        "{}: {} is {}, printed {}",
        result.name,
        result.text,
        quantity(value, unit),
        result.printed.text
    );
    let finding = Finding::serious(code, message).value(value, unit);
    found.push(finding.printed(result.printed.value()).table(name));
}
