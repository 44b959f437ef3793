//! Constraints: rules that drop cells or give them other axes.

use std::collections::HashSet;

use toml::Value;

use crate::axis::{AxisValues, CanonicalValue, label};
use crate::error::PlanError;
use crate::expand::{Cell, axes_of, product};
use crate::measurement::MeasurementKind;
use crate::plan::Plan;
use crate::source::Source;

/// A constraint resolved against the axes.
pub(crate) struct Rule {
    /// Values that a cell must have, by axis name.
    when: Vec<(String, Vec<CanonicalValue>)>,
    drop: bool,
    /// Axes that replace those with the same name.
    replacement_axes: Vec<usize>,
    number: usize,
}

/// Resolves the constraints of a plan; their own axes are appended to `axes`.
pub(crate) fn constraints(
    source: &Source,
    plan: &Plan,
    axes: &mut Vec<AxisValues>,
) -> Result<Vec<Rule>, PlanError> {
    let measured = plan.measurement.kind();
    let mut rules = Vec::new();
    for (number, constraint) in plan.constraint.iter().enumerate() {
        let at = format!("constraint[{number}]");
        if constraint.drop != constraint.matrix.is_empty() {
            return Err(source.error(&at, "a constraint needs drop = true or a matrix, not both"));
        }
        let when = constraint
            .when
            .iter()
            .map(|(name, value)| resolve_condition(source, measured, axes, &at, name, value))
            .collect::<Result<_, _>>()?;
        let first = axes.len();
        for new in axes_of(source, measured, &constraint.matrix, &format!("{at}.matrix"))? {
            let new = with_known_name(source, axes, &at, new)?;
            axes.push(new);
        }
        rules.push(Rule {
            when,
            drop: constraint.drop,
            replacement_axes: (first..axes.len()).collect(),
            number,
        });
    }
    Ok(rules)
}

/// Resolves the condition on one axis: its name and the matching values.
fn resolve_condition(
    source: &Source,
    measured: MeasurementKind,
    axes: &[AxisValues],
    at: &str,
    name: &str,
    value: &Value,
) -> Result<(String, Vec<CanonicalValue>), PlanError> {
    let place = format!("{at}.when.{name}");
    let path = measured.path_of(name);
    let of_axis: Vec<_> = axes.iter().filter(|axis| Some(&axis.path) == path.as_ref()).collect();
    let Some(axis) = of_axis.first() else {
        let mut known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        known.dedup();
        return Err(
            source.error(&place, format!("unknown axis '{name}'; known are {}", known.join(", ")))
        );
    };
    let values = match value {
        Value::Array(values) => values.as_slice(),
        one => std::slice::from_ref(one),
    };
    let meanings: Vec<_> = values.iter().map(CanonicalValue::of).collect();
    // An overridden value may still be named, although no cell has it.
    let on_axis = |meaning: &CanonicalValue| {
        let mut values = of_axis.iter().flat_map(|axis| axis.values.iter().chain(&axis.replaced));
        values.any(|value| CanonicalValue::of(value) == *meaning)
    };
    if let Some(unknown) = meanings.iter().position(|meaning| !on_axis(meaning)) {
        let place = match value {
            Value::Array(_) => format!("{place}[{unknown}]"),
            _ => place,
        };
        let known: Vec<_> = of_axis.iter().flat_map(|axis| axis.labels()).collect();
        let message = format!(
            "'{}' is not a value of this axis; known are {}",
            label(&values[unknown]),
            list_some(&known)
        );
        return Err(source.error(&place, message));
    }
    Ok((axis.name.clone(), meanings))
}

/// Lists a few names as examples.
fn list_some(names: &[String]) -> String {
    const MAX_LISTED_NAMES: usize = 8;
    match names.len() {
        0..=MAX_LISTED_NAMES => names.join(", "),
        count => format!(
            "{} and {} more",
            names[..MAX_LISTED_NAMES - 1].join(", "),
            count - (MAX_LISTED_NAMES - 1)
        ),
    }
}

/// Gives an axis of a constraint the name and the notation of values used by earlier axes of the
/// same field, so that equal values appear once in results.
fn with_known_name(
    source: &Source,
    axes: &[AxisValues],
    at: &str,
    mut new: AxisValues,
) -> Result<AxisValues, PlanError> {
    for known in axes.iter().filter(|known| known.path.overlaps(&new.path)) {
        if known.path != new.path {
            let place = format!("{at}.matrix.{}", new.name);
            let message = format!("overlaps the axis '{}'", known.name);
            return Err(source.error(&place, message));
        }
        new.name.clone_from(&known.name);
        for value in &mut new.values {
            let same = known
                .values
                .iter()
                .find(|known| CanonicalValue::of(known) == CanonicalValue::of(value));
            if let Some(same) = same {
                value.clone_from(same);
            }
        }
    }
    Ok(new)
}

impl Rule {
    fn fits(&self, axes: &[AxisValues], Cell(values): &Cell) -> bool {
        self.when.iter().all(|(name, resolve_condition)| {
            values.iter().any(|(axis, value)| {
                let axis = &axes[*axis as usize];
                axis.name == *name
                    && resolve_condition
                        .contains(&CanonicalValue::of(&axis.values[*value as usize]))
            })
        })
    }

    /// Applies the rule to the cells.
    pub(crate) fn apply(
        &self,
        source: &Source,
        axes: &[AxisValues],
        cells: Vec<Cell>,
    ) -> Result<Vec<Cell>, PlanError> {
        if self.drop {
            return Ok(cells.into_iter().filter(|cell| !self.fits(axes, cell)).collect());
        }
        let replaced = |axis: u16| {
            self.replacement_axes.iter().any(|new| axes[*new].name == axes[axis as usize].name)
        };
        let new = product(source, axes, &self.replacement_axes)?;
        let mut out = Vec::new();
        let mut seen = HashSet::new();
        for cell in cells {
            if !self.fits(axes, &cell) {
                out.push(cell);
                continue;
            }
            let kept: Vec<_> = cell.0.into_iter().filter(|(axis, _)| !replaced(*axis)).collect();
            // Cells that differed only in the replaced axes are merged.
            if seen.insert(kept.clone()) {
                out.extend(
                    new.iter().map(|Cell(new)| Cell(kept.iter().chain(new).copied().collect())),
                );
            }
            if out.len() > source.max_cells {
                let at = format!("constraint[{}]", self.number);
                return Err(source.error(&at, format!("more than {} cells", source.max_cells)));
            }
        }
        Ok(out)
    }
}
