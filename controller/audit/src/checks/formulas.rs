//! Formulas that equal another one: equality is tried on random columns.

use std::collections::HashMap;
use std::rc::Rc;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Found;
use crate::document::Formula;
use crate::expression::{Bounds, Expression, Function, Scope, Value, Values};
use crate::finding::Finding;

/// Number of random columns on which two formulas must agree.
const TRIALS: usize = 100;
/// Seed of the random columns.
const SEED: u64 = 0x6477_656c_6c29;
/// Relative difference of equal values.
const TOLERANCE: f64 = 1e-9;

/// Well-known quantities of a column, with their names.
const OF_COLUMN: &[(&str, &str)] = &[
    ("0", "always 0"),
    ("1", "always 1"),
    ("mean(x)", "the mean"),
    ("mean(diff(x))", "the mean gap"),
    ("mean(abs(diff(x)))", "the mean absolute difference of neighbours"),
    ("median(x)", "the median"),
    ("sd(x)", "the standard deviation"),
    ("sd_population(x)", "the standard deviation (divided by n)"),
    ("var(x)", "the variance"),
    ("sd_population(x)^2", "the variance (divided by n)"),
    ("mean(abs(x - mean(x)))", "the mean absolute deviation"),
    ("sd(x) / sqrt(count(x))", "the standard error"),
    ("sd(x) / mean(x)", "the coefficient of variation"),
    ("sd(diff(x))", "the standard deviation of the gaps"),
    ("median(diff(x))", "the median gap"),
    ("min(x)", "the minimum"),
    ("max(x)", "the maximum"),
    ("range(x)", "the range"),
    ("(min(x) + max(x)) / 2", "the middle of minimum and maximum"),
    ("sum(x)", "the sum"),
    ("count(x)", "the number of values"),
    ("count(x) - 1", "the number of gaps"),
    ("first(x)", "the first value"),
    ("last(x)", "the last value"),
    ("last(x) - first(x)", "the last value minus the first"),
    ("1 / mean(diff(x))", "the rate: one over the mean gap"),
    ("mean(abs(x))", "the mean of absolute values"),
    ("sqrt(mean(x^2))", "the root mean square"),
];

/// Well-known quantities of two columns.
const OF_TWO: &[(&str, &str)] = &[
    ("0", "always 0"),
    ("1", "always 1"),
    ("mean(y) - mean(x)", "the difference of the means"),
    ("mean(x) - mean(y)", "the difference of the means"),
    ("mean(abs(y - x))", "the mean absolute difference"),
    ("mean(y) / mean(x)", "the ratio of the means"),
    ("mean(x) / mean(y)", "the ratio of the means"),
    ("mean(x)", "the mean of one column"),
    ("mean(y)", "the mean of one column"),
    ("mean(x * y)", "the mean product"),
    ("(mean(x) + mean(y)) / 2", "the mean of two means"),
];

/// Words of quantities that are 0 for a perfectly regular column.
const VARIABILITY: &[&str] = &[
    "variability",
    "variation",
    "jitter",
    "deviation",
    "variance",
    "dispersion",
    "stability",
    "spread",
    "pdv",
    "ipdv",
];

/// Kind of random columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Numbers of both signs.
    Any,
    /// Positive numbers.
    Positive,
    /// Numbers that never fall, like timestamps.
    Rising,
}

pub(crate) fn check(formulas: &[Formula], found: &mut Found) {
    for (index, formula) in formulas.iter().enumerate() {
        if let Err(error) =
            values(&formula.expression, &trials(&formula.expression, Kind::Positive, 1))
        {
            found.cannot_tell("formula-equals", "", format!("{}: {error}", formula.name));
            continue;
        }
        if let Some(finding) = equal_to_known(formula) {
            found.push(finding);
        }
        for other in &formulas[index + 1..] {
            found.findings.extend(equal_to(formula, other));
        }
        found.findings.extend(not_a_variability(formula));
    }
}

/// Compares a formula with well-known quantities.
fn equal_to_known(formula: &Formula) -> Option<Finding> {
    let columns = formula.expression.columns();
    let known: Vec<(Expression, String, &str)> = match columns.as_slice() {
        [x] => OF_COLUMN.iter().filter_map(|(text, name)| with_columns(text, name, x, x)).collect(),
        [x, y] => OF_TWO.iter().filter_map(|(text, name)| with_columns(text, name, x, y)).collect(),
        _ => return None,
    };
    let is_own = |candidate: &Expression, name: &str| {
        *candidate == formula.expression
            || name
                .trim_start_matches("the ")
                .eq_ignore_ascii_case(formula.name.trim_start_matches("the "))
    };
    let find = |kind: Kind| {
        known
            .iter()
            .filter(|(candidate, _, name)| !is_own(candidate, name))
            .find(|(candidate, ..)| are_equal(&formula.expression, candidate, kind))
    };
    // On rising columns these equal others by definition: maximum and last value, for instance.
    let is_plain = |text: &str| {
        !["abs(diff", "first(", "last(", "max(", "min("].iter().any(|part| text.contains(part))
    };
    let is_known = known.iter().any(|(candidate, ..)| *candidate == formula.expression);
    if uses_differences(&formula.expression)
        && !is_known
        && let Some((_, text, name)) = find(Kind::Rising)
        && is_plain(text)
        && !known.iter().any(|(candidate, other, _)| {
            other == text && are_equal(&formula.expression, candidate, Kind::Any)
        })
    {
        return Some(equality(formula, text, name, Kind::Rising));
    }
    for kind in [Kind::Any, Kind::Positive] {
        if let Some((_, text, name)) = find(kind) {
            return Some(equality(formula, text, name, kind));
        }
    }
    None
}

/// Compares two formulas of a description.
fn equal_to(formula: &Formula, other: &Formula) -> Option<Finding> {
    let same_columns = {
        let mut columns = [formula.expression.columns(), other.expression.columns()];
        columns.iter_mut().for_each(|columns| columns.sort());
        columns[0] == columns[1] && !columns[0].is_empty()
    };
    if !same_columns {
        return None;
    }
    let kinds = [Kind::Any, Kind::Positive, Kind::Rising];
    let uses_gaps = uses_differences(&formula.expression) || uses_differences(&other.expression);
    let kind = kinds
        .into_iter()
        .filter(|kind| *kind != Kind::Rising || uses_gaps)
        .find(|kind| are_equal(&formula.expression, &other.expression, *kind))?;
    Some(equality(formula, &other.text, &other.name, kind))
}

fn equality(formula: &Formula, text: &str, name: &str, kind: Kind) -> Finding {
    let condition = match kind {
        Kind::Any => "random columns",
        Kind::Positive => "random positive columns",
        Kind::Rising => "random columns that never fall, as timestamps do",
    };
    let message = format!(
        "{}: {} equals {text}, {name}, on {TRIALS} {condition}",
        formula.name, formula.text
    );
    Finding::note("formula-equals", message)
}

/// A formula called a variability must be 0 if nothing varies.
fn not_a_variability(formula: &Formula) -> Option<Finding> {
    let title =
        format!("{} {}", formula.name, formula.meaning.as_deref().unwrap_or("")).to_lowercase();
    let words: Vec<&str> = title.split(|c: char| !c.is_alphanumeric()).collect();
    if !words.iter().any(|word| VARIABILITY.contains(word)) {
        return None;
    }
    const REGULAR_GAP: f64 = 5.0;
    let rises = uses_differences(&formula.expression);
    let column = |_: usize| -> Vec<f64> {
        (0..20).map(|i| if rises { 100.0 + REGULAR_GAP * f64::from(i) } else { 100.0 }).collect()
    };
    let columns = formula.expression.columns();
    let scope = Random {
        columns: columns
            .into_iter()
            .enumerate()
            .map(|(at, key)| (key, exact(&column(at))))
            .collect(),
    };
    let value = scalar(&formula.expression, &scope).ok()?;
    if value.abs() < 1e-6 || value.is_nan() {
        return None;
    }
    let what = if rises {
        format!("{value} for equal gaps of {REGULAR_GAP}")
    } else {
        format!("{value} for equal values of 100")
    };
    let message = format!("{}: {} is {what}, so it is no variability", formula.name, formula.text);
    Some(Finding::note("formula-not-variability", message).value(value, ""))
}

type Key = (Option<String>, String);

/// Replaces `x` and `y` by columns. Returns the expression, its text and the quantity's name.
fn with_columns<'n>(
    text: &str,
    name: &'n str,
    x: &Key,
    y: &Key,
) -> Option<(Expression, String, &'n str)> {
    let full = |(table, column): &Key| {
        let plain = column.chars().all(|c| c.is_alphanumeric() || c == '_');
        let column = if plain { column.clone() } else { format!("'{column}'") };
        table.as_ref().map_or(column.clone(), |table| format!("{table}.{column}"))
    };
    let mut replaced = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, into: &mut String| {
        match word.as_str() {
            "x" => into.push_str(&full(x)),
            "y" => into.push_str(&full(y)),
            other => into.push_str(other),
        }
        word.clear();
    };
    for c in text.chars() {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
        } else {
            flush(&mut word, &mut replaced);
            replaced.push(c);
        }
    }
    flush(&mut word, &mut replaced);
    Some((Expression::parse(&replaced).ok()?, replaced, name))
}

/// Whether a formula takes differences of neighbours, as of timestamps.
fn uses_differences(expression: &Expression) -> bool {
    match expression {
        Expression::Call(Function::Diff | Function::First | Function::Last, _) => true,
        Expression::Call(_, arguments) => arguments.iter().any(uses_differences),
        Expression::Operation(_, a, b) => uses_differences(a) || uses_differences(b),
        Expression::Negative(inner) => uses_differences(inner),
        Expression::Number(_) | Expression::Column(..) => false,
    }
}

/// Random columns of an expression.
struct Random {
    columns: HashMap<Key, Values>,
}

impl Scope for Random {
    fn column(&self, table: Option<&str>, name: &str) -> Result<Values, String> {
        let key = (table.map(str::to_owned), name.to_owned());
        self.columns.get(&key).cloned().ok_or_else(|| format!("no column '{name}'"))
    }
}

fn exact(values: &[f64]) -> Values {
    Rc::new(values.iter().map(|value| Bounds::exact(*value)).collect())
}

/// Random columns for an expression.
fn trials(expression: &Expression, kind: Kind, count: usize) -> Vec<Random> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let keys = expression.columns();
    (0..count)
        .map(|_| {
            let rows = 5 + (rng.random::<f64>() * 40.0) as usize;
            let mut column = || -> Vec<f64> {
                let mut total = rng.random::<f64>() * 1_000.0;
                (0..rows)
                    .map(|_| {
                        let value: f64 = rng.random();
                        match kind {
                            Kind::Any => (value - 0.5) * 2_000.0,
                            Kind::Positive => 1.0 + value * 1_000.0,
                            Kind::Rising => {
                                total += value * 100.0;
                                total
                            }
                        }
                    })
                    .collect()
            };
            Random { columns: keys.iter().map(|key| (key.clone(), exact(&column()))).collect() }
        })
        .collect()
}

fn scalar(expression: &Expression, scope: &Random) -> Result<f64, String> {
    match expression.evaluate(scope)? {
        Value::Scalar(bounds) => Ok(bounds.middle()),
        Value::Column(_) => {
            Err("the result is a column; use sum(), mean() or another function of it".to_owned())
        }
    }
}

fn values(expression: &Expression, trials: &[Random]) -> Result<Vec<f64>, String> {
    trials.iter().map(|trial| scalar(expression, trial)).collect()
}

/// Whether two expressions of the same columns have equal values on all random columns.
fn are_equal(a: &Expression, b: &Expression, kind: Kind) -> bool {
    let trials = trials(a, kind, TRIALS);
    trials.iter().all(|trial| match (scalar(a, trial), scalar(b, trial)) {
        (Ok(a), Ok(b)) => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1e-3),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(formulas: &[(&str, &str)]) -> Vec<(&'static str, String)> {
        let formulas: Vec<Formula> = formulas
            .iter()
            .map(|(name, text)| Formula {
                name: (*name).to_owned(),
                meaning: None,
                text: (*text).to_owned(),
                expression: Expression::parse(text).unwrap(),
            })
            .collect();
        let mut found = Found::default();
        check(&formulas, &mut found);
        found.findings.into_iter().map(|finding| (finding.code, finding.message)).collect()
    }

    #[test]
    fn mok_variability_is_the_mean_gap_and_no_variability() {
        let found =
            findings(&[("inter-departure time variability", "sum(abs(diff(t))) / (count(t) - 1)")]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].0, "formula-equals");
        assert!(found[0].1.contains("mean(diff(t)), the mean gap"), "{}", found[0].1);
        assert_eq!(found[1].0, "formula-not-variability");
    }

    #[test]
    fn other_identities_are_found() {
        for (text, wanted) in [
            ("mean(x - mean(x))", "always 0"),
            ("mean(received - sent)", "the difference of the means"),
            ("sum(x) / count(x)", "the mean"),
            ("sqrt(sum((x - mean(x))^2) / (count(x) - 1))", "the standard deviation"),
        ] {
            let found = findings(&[("result", text)]);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].1.contains(wanted), "{text}: {}", found[0].1);
        }
        let pair =
            findings(&[("a", "max(x) - min(x) + mean(x)"), ("b", "range(x) + sum(x) / count(x)")]);
        assert_eq!(pair.len(), 1, "{pair:?}");
    }

    #[test]
    fn different_formulas_and_true_variabilities_are_not_reported() {
        assert_eq!(findings(&[("jitter", "mean(abs(diff(diff(t))))")]), []);
        assert_eq!(
            findings(&[("standard deviation", "sqrt(sum((x - mean(x))^2) / (count(x) - 1))")]),
            []
        );
        assert_eq!(findings(&[("a", "mean(x) + sd(x)"), ("b", "mean(x) + sd_population(x)")]), []);
    }
}
