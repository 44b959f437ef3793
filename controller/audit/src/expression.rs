//! Expressions over columns, evaluated with the bounds that rounding leaves.

use std::rc::Rc;

/// Maximum length of an expression.
const MAX_EXPRESSION_LEN: usize = 1_000;
/// Maximum nesting of an expression.
const MAX_DEPTH: usize = 40;

/// A number between two bounds; both are not a number where missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl Bounds {
    /// An exact number.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// The middle.
    pub fn middle(self) -> f64 {
        if self.low == self.high { self.low } else { self.low + (self.high - self.low) / 2.0 }
    }

    /// Whether a bound is missing.
    pub fn is_nan(self) -> bool {
        self.low.is_nan() || self.high.is_nan()
    }

    fn of(values: [f64; 4]) -> Self {
        if values.iter().any(|value| value.is_nan()) {
            return Self::exact(f64::NAN);
        }
        Self {
            low: values.into_iter().fold(f64::INFINITY, f64::min),
            high: values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// A column, of a table if named.
    Column(Option<String>, String),
    /// A function and its arguments.
    Call(Function, Vec<Expression>),
    /// An operation on two operands.
    Operation(Operator, Box<Expression>, Box<Expression>),
    /// The negative.
    Negative(Box<Expression>),
}

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient.
    Divide,
    /// Power.
    Power,
}

macro_rules! functions {
    ($($variant:ident $name:literal $(| $alias:literal)* : $doc:literal),+ $(,)?) => {
        /// A function.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Function {
            $(#[doc = $doc] $variant),+
        }

        impl Function {
            /// Names of all functions.
            pub const NAMES: &[&str] = &[$($name),+];

            fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name $(| $alias)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

functions! {
    Sum "sum" | "total": "Sum of a column.",
    Mean "mean" | "average" | "avg": "Arithmetic mean of a column.",
    Min "min" | "minimum": "Smallest value of a column.",
    Max "max" | "maximum": "Largest value of a column.",
    Median "median": "Median of a column.",
    Count "count" | "n" | "len": "Number of values of a column.",
    Sd "sd" | "std" | "stdev" | "stddev": "Standard deviation of a column, divided by n - 1.",
    SdPopulation "sd_population" | "pstdev": "Standard deviation of a column, divided by n.",
    Variance "var" | "variance": "Variance of a column, divided by n - 1.",
    First "first": "First value of a column.",
    Last "last": "Last value of a column.",
    Range "range": "Largest minus smallest value of a column.",
    Percentile "percentile" | "p": "Percentile of a column: percentile(x, 99.9).",
    Abs "abs": "Absolute values.",
    Sqrt "sqrt": "Square roots.",
    Log "log" | "ln": "Natural logarithms.",
    Diff "diff": "Differences of successive values; one fewer than the column.",
    Distinct "distinct": "Distinct values of a column.",
}

/// A column's values for an expression.
pub(crate) type Values = Rc<Vec<Bounds>>;

/// The columns that an expression can use.
pub trait Scope {
    /// Values of a column; the error states the reason.
    fn column(&self, table: Option<&str>, name: &str) -> Result<Values, String>;
}

/// Result of an expression.
#[derive(Clone, Debug)]
pub enum Value {
    /// One number.
    Scalar(Bounds),
    /// One number per row.
    Column(Values),
}

impl Expression {
    /// Parses an expression. Names are letters, digits and underscores, or anything in single
    /// quotes; a table's name comes before its column, with a point between.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_EXPRESSION_LEN {
            return Err(format!("longer than {MAX_EXPRESSION_LEN} characters"));
        }
        let mut parser = Parser { rest: text.trim_start(), whole: text, depth: 0 };
        let expression = parser.sum()?;
        if parser.rest.is_empty() { Ok(expression) } else { Err(parser.unexpected("an operator")) }
    }

    /// Names of all columns, each once, in order of their first use.
    pub fn columns(&self) -> Vec<(Option<String>, String)> {
        let mut found = Vec::new();
        self.collect_columns(&mut found);
        found
    }

    fn collect_columns(&self, found: &mut Vec<(Option<String>, String)>) {
        match self {
            Self::Number(_) => {}
            Self::Column(table, name) => {
                let column = (table.clone(), name.clone());
                if !found.contains(&column) {
                    found.push(column);
                }
            }
            Self::Call(_, arguments) => {
                arguments.iter().for_each(|argument| argument.collect_columns(found));
            }
            Self::Operation(_, a, b) => {
                a.collect_columns(found);
                b.collect_columns(found);
            }
            Self::Negative(inner) => inner.collect_columns(found),
        }
    }

    /// Evaluates the expression.
    pub fn evaluate(&self, scope: &dyn Scope) -> Result<Value, String> {
        match self {
            Self::Number(number) => Ok(Value::Scalar(Bounds::exact(*number))),
            Self::Column(table, name) => Ok(Value::Column(scope.column(table.as_deref(), name)?)),
            Self::Negative(inner) => {
                let minus = Value::Scalar(Bounds::exact(-1.0));
                combine(Operator::Multiply, minus, inner.evaluate(scope)?)
            }
            Self::Operation(operator, a, b) => {
                combine(*operator, a.evaluate(scope)?, b.evaluate(scope)?)
            }
            Self::Call(function, arguments) => {
                let first = arguments.first().ok_or("a function needs an argument")?;
                let first = first.evaluate(scope)?;
                let percent = match arguments.get(1) {
                    None => None,
                    Some(argument) => match argument.evaluate(scope)? {
                        Value::Scalar(bounds) => Some(bounds.middle()),
                        Value::Column(_) => return Err("a percentile needs a number".to_owned()),
                    },
                };
                call(*function, first, percent)
            }
        }
    }

    /// Evaluates an expression whose result is one number.
    pub fn scalar(&self, scope: &dyn Scope) -> Result<Bounds, String> {
        match self.evaluate(scope)? {
            Value::Scalar(bounds) => Ok(bounds),
            Value::Column(values) if values.len() == 1 => Ok(values[0]),
            Value::Column(_) => {
                Err("the result is a column; use sum(), mean() or another function of it"
                    .to_owned())
            }
        }
    }
}

fn combine(operator: Operator, a: Value, b: Value) -> Result<Value, String> {
    Ok(match (a, b) {
        (Value::Scalar(a), Value::Scalar(b)) => Value::Scalar(operate(operator, a, b)),
        (Value::Column(a), Value::Scalar(b)) => {
            Value::Column(Rc::new(a.iter().map(|a| operate(operator, *a, b)).collect()))
        }
        (Value::Scalar(a), Value::Column(b)) => {
            Value::Column(Rc::new(b.iter().map(|b| operate(operator, a, *b)).collect()))
        }
        (Value::Column(a), Value::Column(b)) => {
            if a.len() != b.len() {
                return Err(format!(
                    "columns of {} and {} rows cannot be combined row by row",
                    a.len(),
                    b.len()
                ));
            }
            Value::Column(Rc::new(
                a.iter().zip(b.iter()).map(|(a, b)| operate(operator, *a, *b)).collect(),
            ))
        }
    })
}

fn operate(operator: Operator, a: Bounds, b: Bounds) -> Bounds {
    let all = |f: fn(f64, f64) -> f64| {
        if a.low == a.high && b.low == b.high {
            return Bounds::exact(f(a.low, b.low));
        }
        Bounds::of([f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)])
    };
    match operator {
        Operator::Add => Bounds { low: a.low + b.low, high: a.high + b.high },
        Operator::Subtract => Bounds { low: a.low - b.high, high: a.high - b.low },
        Operator::Multiply => all(|a, b| a * b),
        Operator::Divide if b.low < 0.0 && b.high > 0.0 => {
            Bounds { low: f64::NEG_INFINITY, high: f64::INFINITY }
        }
        Operator::Divide => all(|a, b| a / b),
        Operator::Power if a.low < 0.0 && a.high > 0.0 && b.middle() % 2.0 == 0.0 => {
            let high = (-a.low).max(a.high);
            Bounds { low: 0.0, high: high.powf(b.middle()) }
        }
        Operator::Power => all(f64::powf),
    }
}

fn call(function: Function, argument: Value, percent: Option<f64>) -> Result<Value, String> {
    if let Some(map) = elementwise(function) {
        return Ok(match argument {
            Value::Scalar(bounds) => Value::Scalar(map(bounds)),
            Value::Column(values) => {
                Value::Column(Rc::new(values.iter().map(|bounds| map(*bounds)).collect()))
            }
        });
    }
    let values = match argument {
        Value::Column(values) => values,
        Value::Scalar(bounds) => Rc::new(vec![bounds]),
    };
    if function == Function::Diff {
        let steps = values.windows(2).map(|pair| operate(Operator::Subtract, pair[1], pair[0]));
        return Ok(Value::Column(Rc::new(steps.collect())));
    }
    let present: Vec<Bounds> = values.iter().copied().filter(|bounds| !bounds.is_nan()).collect();
    if function == Function::Distinct {
        let mut distinct = present;
        distinct.sort_by(|a, b| a.middle().total_cmp(&b.middle()));
        distinct.dedup();
        return Ok(Value::Column(Rc::new(distinct)));
    }
    aggregate(function, &present, percent).map(Value::Scalar)
}

fn elementwise(function: Function) -> Option<fn(Bounds) -> Bounds> {
    Some(match function {
        Function::Abs => |bounds| {
            if bounds.low >= 0.0 || bounds.is_nan() {
                bounds
            } else if bounds.high <= 0.0 {
                Bounds { low: -bounds.high, high: -bounds.low }
            } else {
                Bounds { low: 0.0, high: bounds.high.max(-bounds.low) }
            }
        },
        Function::Sqrt => |bounds| {
            let low = if bounds.low < 0.0 && bounds.high >= 0.0 { 0.0 } else { bounds.low.sqrt() };
            Bounds { low, high: bounds.high.sqrt() }
        },
        Function::Log => |bounds| Bounds { low: bounds.low.ln(), high: bounds.high.ln() },
        _ => return None,
    })
}

fn aggregate(
    function: Function,
    values: &[Bounds],
    percent: Option<f64>,
) -> Result<Bounds, String> {
    let n = values.len() as f64;
    if function == Function::Count {
        return Ok(Bounds::exact(n));
    }
    if values.is_empty() {
        return Err("a column has no values".to_owned());
    }
    let both = |f: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| Bounds {
        low: f(&mut values.iter().map(|bounds| bounds.low)),
        high: f(&mut values.iter().map(|bounds| bounds.high)),
    };
    let sum = || both(&|values| values.sum());
    let ranks = |from: f64, to: f64| {
        let at = |rank: f64| (rank.max(1.0).min(n) as usize) - 1;
        let mut lows: Vec<f64> = values.iter().map(|bounds| bounds.low).collect();
        let mut highs: Vec<f64> = values.iter().map(|bounds| bounds.high).collect();
        lows.sort_by(f64::total_cmp);
        highs.sort_by(f64::total_cmp);
        Bounds { low: lows[at(from)], high: highs[at(to)] }
    };
    let divided = |bounds: Bounds, by: f64| Bounds { low: bounds.low / by, high: bounds.high / by };
    Ok(match function {
        Function::Sum => sum(),
        Function::Mean => divided(sum(), n),
        Function::Min => both(&|values| values.fold(f64::INFINITY, f64::min)),
        Function::Max => both(&|values| values.fold(f64::NEG_INFINITY, f64::max)),
        Function::First => values[0],
        Function::Last => values[values.len() - 1],
        Function::Range => {
            let (max, min) =
                (aggregate(Function::Max, values, None)?, aggregate(Function::Min, values, None)?);
            let range = operate(Operator::Subtract, max, min);
            Bounds { low: range.low.max(0.0), ..range }
        }
        Function::Median => {
            let middle = ranks(((n + 1.0) / 2.0).floor(), ((n + 1.0) / 2.0).ceil());
            // Of exact values the median is one number.
            if values.iter().all(|bounds| bounds.low == bounds.high) {
                Bounds::exact(middle.middle())
            } else {
                middle
            }
        }
        Function::Percentile => {
            let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
            let share = percent.ok_or("write percentile(x, P) with P from 0 to 100")? / 100.0;
            ranks((n * share).floor(), (n * share).ceil() + 1.0)
        }
        Function::Sd | Function::SdPopulation | Function::Variance => {
            let freedom = if function == Function::SdPopulation { n } else { n - 1.0 };
            if freedom < 1.0 {
                return Err("a deviation needs two values".to_owned());
            }
            let mean = values.iter().map(|bounds| bounds.middle()).sum::<f64>() / n;
            let squares: f64 = values.iter().map(|bounds| (bounds.middle() - mean).powi(2)).sum();
            let sd = (squares / freedom).sqrt();
            // Errors of the rows change the deviation by at most their own root mean square.
            let errors: f64 =
                values.iter().map(|bounds| ((bounds.high - bounds.low) / 2.0).powi(2)).sum();
            let error = (errors / freedom).sqrt();
            let (low, high) = ((sd - error).max(0.0), sd + error);
            match function {
                Function::Variance => Bounds { low: low * low, high: high * high },
                _ => Bounds { low, high },
            }
        }
        Function::Count
        | Function::Abs
        | Function::Sqrt
        | Function::Log
        | Function::Diff
        | Function::Distinct => return Err("not a function of a column".to_owned()),
    })
}

struct Parser<'t> {
    rest: &'t str,
    whole: &'t str,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("nested too deeply".to_owned());
        }
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.take('+') => Operator::Add,
                () if self.take('-') || self.take('\u{2212}') => Operator::Subtract,
                () => break,
            };
            let right = self.product()?;
            left = Expression::Operation(operator, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let mut left = self.unary()?;
        loop {
            let operator = match () {
                () if self.take('*') || self.take('\u{d7}') || self.take('\u{b7}') => {
                    Operator::Multiply
                }
                () if self.take('/') => Operator::Divide,
                () => return Ok(left),
            };
            let right = self.unary()?;
            left = Expression::Operation(operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("nested too deeply".to_owned());
        }
        let found = if self.take('-') || self.take('\u{2212}') {
            Expression::Negative(Box::new(self.unary()?))
        } else {
            let base = self.atom()?;
            if self.take('^') {
                Expression::Operation(Operator::Power, Box::new(base), Box::new(self.unary()?))
            } else {
                base
            }
        };
        self.depth -= 1;
        Ok(found)
    }

    fn atom(&mut self) -> Result<Expression, String> {
        if self.take('(') {
            let inner = self.sum()?;
            self.expect(')')?;
            return Ok(inner);
        }
        let c = self.rest.chars().next().ok_or_else(|| self.unexpected("a value"))?;
        if c.is_ascii_digit() || c == '.' {
            return self.number();
        }
        let Some(name) = self.name() else { return Err(self.unexpected("a value")) };
        if self.take('(') {
            return self.call(&name);
        }
        if self.take('.') {
            let column = self.name().ok_or_else(|| self.unexpected("a column"))?;
            return Ok(Expression::Column(Some(name), column));
        }
        Ok(Expression::Column(None, name))
    }

    fn call(&mut self, name: &str) -> Result<Expression, String> {
        let function = Function::parse(&name.to_lowercase()).ok_or_else(|| {
            format!("unknown function '{name}'; known: {}", Function::NAMES.join(", "))
        })?;
        let mut arguments = vec![self.sum()?];
        while self.take(',') {
            arguments.push(self.sum()?);
        }
        self.expect(')')?;
        let wanted = if function == Function::Percentile { 2 } else { 1 };
        if arguments.len() != wanted {
            return Err(format!("{name}() has {} arguments, not {wanted}", arguments.len()));
        }
        Ok(Expression::Call(function, arguments))
    }

    fn number(&mut self) -> Result<Expression, String> {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        while let Some(byte) = bytes.get(end) {
            let is_sign = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || *byte == b'.' || matches!(byte, b'e' | b'E') || is_sign) {
                break;
            }
            end += 1;
        }
        let (text, rest) = self.rest.split_at(end);
        let value = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
        self.rest = rest.trim_start();
        Ok(Expression::Number(value))
    }

    /// Takes a name: letters, digits and underscores, or anything in single quotes.
    fn name(&mut self) -> Option<String> {
        if let Some(quoted) = self.rest.strip_prefix('\'') {
            let end = quoted.find('\'')?;
            let name = quoted[..end].to_owned();
            self.rest = quoted[end + 1..].trim_start();
            return (!name.is_empty()).then_some(name);
        }
        let end =
            self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let name = self.rest[..end].to_owned();
        self.rest = self.rest[end..].trim_start();
        (!name.is_empty()).then_some(name)
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.take(c) { Ok(()) } else { Err(self.unexpected(&format!("'{c}'"))) }
    }

    fn unexpected(&self, wanted: &str) -> String {
        let at = self.whole.len() - self.rest.len();
        let found = self.rest.chars().next().map_or("the end".to_owned(), |c| format!("'{c}'"));
        format!("expected {wanted} at character {}, found {found}", at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl Scope for Fixed {
        fn column(&self, table: Option<&str>, name: &str) -> Result<Values, String> {
            let values: &[f64] = match (table, name) {
                (None, "x") => &[1.0, 2.0, 4.0, 4.0],
                (Some("other"), "Latency (ms)") => &[10.0, f64::NAN, 30.0, 40.0],
                _ => return Err(format!("no column {name}")),
            };
            Ok(Rc::new(values.iter().map(|value| Bounds::exact(*value)).collect()))
        }
    }

    fn value(text: &str) -> f64 {
        Expression::parse(text).unwrap().scalar(&Fixed).unwrap().middle()
    }

    #[test]
    fn expressions_follow_the_usual_rules() {
        assert_eq!(value("1 + 2 * 3 ^ 2 - -4 / 2"), 21.0);
        assert_eq!(value("2.5e1 * 2"), 50.0);
        assert_eq!(value("mean(x)"), 2.75);
        assert_eq!(value("sum(abs(diff(x))) / (count(x) - 1)"), 1.0);
        assert_eq!(value("mean(distinct(x))"), 7.0 / 3.0);
        assert_eq!(value("median(x) + min(x) - range(x)"), 1.0);
        assert_eq!(value("mean(other.'Latency (ms)' * x)"), (10.0 + 120.0 + 160.0) / 3.0);
        assert!((value("sd(x)^2") - 2.25).abs() < 1e-12);
        assert_eq!(value("percentile(x, 50)"), 3.0);
    }

    #[test]
    fn wrong_expressions_are_refused_with_the_place() {
        for (text, words) in [
            ("mean(x", "expected ')' at character 7"),
            ("mean(x))", "expected an operator"),
            ("men(x)", "unknown function 'men'; known: sum, mean"),
            ("1 +", "found the end"),
            ("mean(x, x)", "2 arguments, not 1"),
            ("'x", "expected a value"),
            ("1.2.3", "not a number"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let deep = "(".repeat(200) + "1";
        assert!(Expression::parse(&deep).unwrap_err().contains("deeply"));
        let error = Expression::parse("mean(y)").unwrap().scalar(&Fixed).unwrap_err();
        assert!(error.contains("no column y"));
        assert!(Expression::parse("x").unwrap().scalar(&Fixed).is_err());
    }

    #[test]
    fn bounds_hold_every_value_inside_them() {
        let a = Bounds { low: -1.0, high: 2.0 };
        let b = Bounds { low: 3.0, high: 4.0 };
        assert_eq!(operate(Operator::Multiply, a, b), Bounds { low: -4.0, high: 8.0 });
        assert_eq!(operate(Operator::Divide, b, a).high, f64::INFINITY);
        assert_eq!(operate(Operator::Power, a, Bounds::exact(2.0)), Bounds { low: 0.0, high: 4.0 });
    }
}
