//! From a matrix to cells, and from cells to trials in an order.

use std::collections::BTreeMap;
use std::collections::HashSet;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use toml::{Table, Value};

use crate::axis::{AxisValues, label};
use crate::error::PlanError;
use crate::plan::{Order, Plan};
use crate::source::{Source, put};

/// The most cells that are expanded at all; whoever runs a plan asks far earlier.
const MOST_CELLS: usize = 10_000_000;

/// One combination of values: for each axis that it has, the number of the axis and of its value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(Vec<(u16, u32)>);

/// One measurement to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Its number, from 1, cell by cell as the matrix is written.
    pub number: u32,
    /// The number of its cell, from 0.
    pub cell: u32,
    /// Which repetition of its cell, from 1.
    pub repetition: u32,
}

/// Everything that a plan asks for.
#[derive(Clone, Debug)]
pub struct Expansion {
    source: Source,
    plan: Plan,
    axes: Vec<AxisValues>,
    cells: Vec<Cell>,
    /// In the order in which they are to be run.
    trials: Vec<Trial>,
    /// Decides the order.
    seed: u64,
}

/// Expands the plan of `source`. `seed` decides the order of trials where the plan has no seed of
/// its own.
///
/// # Errors
/// The first thing that is wrong, with its place. Every value of every axis is tried on its own;
/// what is wrong only in a combination shows when [`Expansion::plan_of`] is asked for it.
pub fn expand(source: &Source, seed: u64) -> Result<Expansion, PlanError> {
    let plan = Plan::read(source)?;
    let mut axes = axes(source, &plan.matrix, "matrix")?;
    let base = axes.len();
    // First of all how many there are: nobody waits for the judgement of too many.
    let mut cells = product(source, &axes, &(0..base).collect::<Vec<_>>())?;
    check_each_value(source, &axes)?;
    let constraints = constraints(source, &plan, &mut axes)?;
    for constraint in &constraints {
        cells = constraint.apply(source, &axes, cells)?;
    }
    if cells.is_empty() {
        return Err(source.error("constraint", "the constraints leave no cell"));
    }
    let seed = plan.trials.seed.unwrap_or(seed);
    let trials = order(source, &plan, cells.len(), seed)?;
    Ok(Expansion { source: source.clone(), plan, axes, cells, trials, seed })
}

impl Expansion {
    /// The plan without the values of any cell.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where the plan came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The trials in the order in which they are to be run.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The cells, in the order in which the matrix is written.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The seed of the order.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The axes by name, with all values that any cell has of them.
    pub fn axes(&self) -> Vec<AxisValues> {
        let mut merged: Vec<AxisValues> = Vec::new();
        for axis in &self.axes {
            match merged.iter_mut().find(|known| known.name == axis.name) {
                Some(known) => {
                    for value in &axis.values {
                        if !known.values.contains(value) {
                            known.values.push(value.clone());
                        }
                    }
                }
                None => merged.push(axis.clone()),
            }
        }
        // An axis that a constraint replaced everywhere keeps only what is used.
        let used: HashSet<(u16, u32)> =
            self.cells.iter().flat_map(|cell| cell.0.iter().copied()).collect();
        for axis in &mut merged {
            let is_used = |value: &Value| {
                used.iter().any(|(number, index)| {
                    let from = &self.axes[*number as usize];
                    from.name == axis.name && from.values[*index as usize] == *value
                })
            };
            axis.values.retain(is_used);
        }
        merged
    }

    /// The values of a cell, by axis, as the plan writes them.
    pub fn parameters(&self, cell: u32) -> BTreeMap<String, String> {
        let Cell(values) = &self.cells[cell as usize];
        values
            .iter()
            .map(|(axis, value)| {
                let axis = &self.axes[*axis as usize];
                (axis.name.clone(), label(&axis.values[*value as usize]))
            })
            .collect()
    }

    /// The plan with the values of a cell put in.
    ///
    /// # Errors
    /// These values do not go together.
    pub fn plan_of(&self, cell: u32) -> Result<Plan, PlanError> {
        let mut table = bare(&self.source);
        for (axis, value) in &self.cells[cell as usize].0 {
            let axis = &self.axes[*axis as usize];
            put(&mut table, &axis.path, axis.values[*value as usize].clone())
                .map_err(|message| self.source.error(&axis.path, message))?;
        }
        Plan::with(&self.source, table).map_err(|mut error| {
            let cell = self.parameters(cell);
            let cell: Vec<_> = cell.iter().map(|(name, value)| format!("{name} {value}")).collect();
            error.message = format!("{} (in the cell {})", error.message, cell.join(", "));
            error
        })
    }
}

/// The plan's table without its matrix, which a cell's values replace.
fn bare(source: &Source) -> Table {
    let mut table = source.table().clone();
    table.remove("matrix");
    table.remove("constraint");
    table
}

/// The axes of a table, in the order of the file.
fn axes(source: &Source, matrix: &Table, at: &str) -> Result<Vec<AxisValues>, PlanError> {
    let mut axes = Vec::new();
    for (name, value) in matrix {
        let place = format!("{at}.{name}");
        let one_way = source.table().contains_key("flow");
        let path = path_of(name, one_way).ok_or_else(|| {
            source.error(
                &place,
                "not a field of a plan; an axis is a field of [ping] or [flow], load, relay, or a \
                 path like \"topology.link.rate\" in quotes",
            )
        })?;
        let axis = AxisValues::read(name, path, value).map_err(|why| source.error(&place, why))?;
        axes.push(axis);
    }
    if axes.len() > usize::from(u16::MAX) {
        return Err(source.error(at, "too many axes"));
    }
    Ok(axes)
}

/// The path of the field that an axis of this name sets; `one_way` is a plan of a `[flow]`.
fn path_of(name: &str, one_way: bool) -> Option<String> {
    const PING: [&str; 22] = [
        "from",
        "to",
        "protocol",
        "port",
        "size",
        "count",
        "duration",
        "interval",
        "rate",
        "closed_loop",
        "pause",
        "timeout",
        "warm_up",
        "stamps",
        "sched_stamps",
        "busy_poll",
        "scheduling",
        "icmp_socket",
        "pattern",
        "ipv6",
        "ttl",
        "dscp",
    ];
    const FLOW: [&str; 13] = [
        "from",
        "to",
        "size",
        "rate",
        "duration",
        "count",
        "warm_up",
        "header",
        "port",
        "settle",
        "stamps",
        "busy_poll",
        "ipv6",
    ];
    if name == "relay" {
        return one_way.then(|| "relay.mode".to_owned());
    }
    if name == "load" || name.contains('.') {
        let forbidden = ["matrix.", "constraint.", "trials.", "stop."];
        return (!forbidden.iter().any(|start| name.starts_with(start))).then(|| name.to_owned());
    }
    let (known, table): (&[&str], _) = if one_way { (&FLOW, "flow") } else { (&PING, "ping") };
    known.contains(&name).then(|| format!("{table}.{name}"))
}

/// Tries every value of every axis on its own.
fn check_each_value(source: &Source, axes: &[AxisValues]) -> Result<(), PlanError> {
    for axis in axes {
        for (number, value) in axis.values.iter().enumerate() {
            let mut table = bare(source);
            // Whether fields go together shows in the cell; here each is only read.
            let place = format!("matrix.{}", axis.name);
            put(&mut table, &axis.path, value.clone())
                .map_err(|message| source.error(&place, message))?;
            if let Err(error) = Plan::with(source, table)
                && error.field == axis.path
            {
                let one = source.error(&format!("{place}[{number}]"), error.message);
                return Err(PlanError { field: place, ..one });
            }
        }
    }
    Ok(())
}

/// A constraint whose axes are known.
struct Rule {
    /// The values that a cell must have: numbers of axes of that name, with the values that fit.
    when: Vec<(String, Vec<Value>)>,
    drop: bool,
    /// Axes that take the place of those of the same name.
    instead: Vec<usize>,
    number: usize,
}

fn constraints(
    source: &Source,
    plan: &Plan,
    axes: &mut Vec<AxisValues>,
) -> Result<Vec<Rule>, PlanError> {
    let known: Vec<String> = axes.iter().map(|axis| axis.name.clone()).collect();
    let mut rules = Vec::new();
    for (number, constraint) in plan.constraint.iter().enumerate() {
        let at = format!("constraint[{number}]");
        if constraint.drop != constraint.matrix.is_empty() {
            return Err(source.error(&at, "a constraint has drop = true, or a matrix of its own"));
        }
        let mut when = Vec::new();
        for (name, value) in &constraint.when {
            if !known.contains(name) {
                return Err(source.error(
                    &format!("{at}.when.{name}"),
                    format!("'{name}' is no axis; there are {}", known.join(", ")),
                ));
            }
            let wanted = match value {
                Value::Array(values) => values.clone(),
                one => vec![one.clone()],
            };
            when.push((name.clone(), wanted));
        }
        let first = axes.len();
        axes.extend(self::axes(source, &constraint.matrix, &format!("{at}.matrix"))?);
        rules.push(Rule {
            when,
            drop: constraint.drop,
            instead: (first..axes.len()).collect(),
            number,
        });
    }
    Ok(rules)
}

impl Rule {
    fn fits(&self, axes: &[AxisValues], Cell(values): &Cell) -> bool {
        self.when.iter().all(|(name, wanted)| {
            values.iter().any(|(axis, value)| {
                let axis = &axes[*axis as usize];
                axis.name == *name && wanted.contains(&axis.values[*value as usize])
            })
        })
    }

    fn apply(
        &self,
        source: &Source,
        axes: &[AxisValues],
        cells: Vec<Cell>,
    ) -> Result<Vec<Cell>, PlanError> {
        if self.drop {
            return Ok(cells.into_iter().filter(|cell| !self.fits(axes, cell)).collect());
        }
        let replaced =
            |axis: u16| self.instead.iter().any(|new| axes[*new].name == axes[axis as usize].name);
        let new = product(source, axes, &self.instead)?;
        let mut out = Vec::new();
        let mut seen = HashSet::new();
        for cell in cells {
            if !self.fits(axes, &cell) {
                out.push(cell);
                continue;
            }
            let kept: Vec<_> = cell.0.into_iter().filter(|(axis, _)| !replaced(*axis)).collect();
            // Cells that differed in the replaced axes only are one now.
            if seen.insert(kept.clone()) {
                out.extend(
                    new.iter().map(|Cell(new)| Cell(kept.iter().chain(new).copied().collect())),
                );
            }
            if out.len() > MOST_CELLS {
                let at = format!("constraint[{}]", self.number);
                return Err(source.error(&at, format!("more than {MOST_CELLS} cells")));
            }
        }
        Ok(out)
    }
}

/// All combinations of the values of these axes; the last axis varies fastest.
fn product(source: &Source, axes: &[AxisValues], chosen: &[usize]) -> Result<Vec<Cell>, PlanError> {
    let lengths = chosen.iter().map(|&axis| axes[axis].values.len());
    let count = lengths.clone().try_fold(1_usize, usize::checked_mul);
    let count = count.filter(|count| *count <= MOST_CELLS).ok_or_else(|| {
        let sizes: Vec<_> = lengths.map(|n| n.to_string()).collect();
        source.error("matrix", format!("{} are more than {MOST_CELLS} cells", sizes.join(" x ")))
    })?;
    let mut cells = Vec::with_capacity(count);
    for mut rest in 0..count {
        let mut values = vec![(0, 0); chosen.len()];
        for (place, &axis) in chosen.iter().enumerate().rev() {
            let length = axes[axis].values.len();
            values[place] = (axis as u16, (rest % length) as u32);
            rest /= length;
        }
        cells.push(Cell(values));
    }
    Ok(cells)
}

fn order(source: &Source, plan: &Plan, cells: usize, seed: u64) -> Result<Vec<Trial>, PlanError> {
    let repetitions = plan.trials.repetitions;
    let count = cells as u64 * u64::from(repetitions);
    if count > MOST_CELLS as u64 {
        return Err(source.error(
            "trials.repetitions",
            format!("{cells} cells x {repetitions} repetitions are more than {MOST_CELLS} trials"),
        ));
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let trial = |cell: u32, repetition: u32| Trial {
        number: cell * repetitions + repetition,
        cell,
        repetition,
    };
    let all_cells = 0..cells as u32;
    let mut trials: Vec<Trial> = match plan.trials.order {
        Order::AsWritten | Order::Random => all_cells
            .flat_map(|cell| (1..=repetitions).map(move |repetition| trial(cell, repetition)))
            .collect(),
        Order::Blocks => (1..=repetitions)
            .flat_map(|repetition| {
                let mut block: Vec<_> =
                    all_cells.clone().map(|cell| trial(cell, repetition)).collect();
                block.shuffle(&mut random);
                block
            })
            .collect(),
    };
    if plan.trials.order == Order::Random {
        trials.shuffle(&mut random);
    }
    Ok(trials)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S0's sweep: relay modes are protocols here, "encrypt" has packet rates of its own.
    const PLAN: &str = r#"
version = 1
name = "s0"
topology = { lab = "line:3" }
[ping]
from = "n1"
to = "n3"
duration = "5s"
[loads.half]
cpu = [{ on = "n2", level = "50%" }]
[loads.full]
cpu = [{ on = "n2", level = "90%" }]
[matrix]
protocol = ["udp", "tcp"]
size = { from = "100B", to = "1400B", step = "100B" }
rate = { from = "200pps", to = "1200pps", step = "200pps" }
load = ["none", "half", "full"]
[[constraint]]
when = { protocol = "tcp" }
matrix = { rate = { from = "20pps", to = "400pps", step = "20pps" } }
"#;

    fn expanded(text: &str) -> Expansion {
        expand(&Source::parse(text).unwrap(), 7).unwrap()
    }

    #[test]
    fn a_constraint_with_a_matrix_gives_its_cells_their_own_axis() {
        let s0 = expanded(PLAN);
        assert_eq!(s0.cells().len(), 14 * 6 * 3 + 14 * 20 * 3);
        let last = s0.cells().len() as u32 - 1;
        let parameters = s0.parameters(last);
        assert_eq!(parameters["protocol"], "tcp");
        assert_eq!(parameters["rate"], "400pps");
        let plan = s0.plan_of(last).unwrap();
        assert_eq!((plan.ping.unwrap().size.unwrap().0, plan.load.as_str()), (1400, "full"));
        let rate = s0.axes().into_iter().find(|axis| axis.name == "rate").unwrap();
        assert_eq!(rate.values.len(), 6 + 18, "200pps and 400pps are in both");
    }

    #[test]
    fn every_cell_comes_once_per_block_and_the_order_is_the_seeds() {
        let text = format!("{PLAN}[trials]\nrepetitions = 2\n");
        let (one, other) = (expanded(&text), expanded(&text));
        assert_eq!(one.trials(), other.trials());
        let cells = one.cells().len();
        for block in one.trials().chunks(cells) {
            let seen: HashSet<_> = block.iter().map(|trial| trial.cell).collect();
            assert_eq!(seen.len(), cells);
            assert!(block.iter().all(|trial| trial.repetition == block[0].repetition));
        }
        let numbers: HashSet<_> = one.trials().iter().map(|trial| trial.number).collect();
        assert_eq!(numbers.len(), 2 * cells);
        let different = expand(&Source::parse(&text).unwrap(), 8).unwrap();
        assert_ne!(one.trials(), different.trials());
        let fixed = expanded(&format!("{PLAN}[trials]\nseed = 3\n"));
        assert_eq!(fixed.seed(), 3);
    }

    #[test]
    fn dropped_cells_are_gone() {
        let text = format!(
            "{PLAN}[[constraint]]\nwhen = {{ load = [\"half\", \"full\"] }}\ndrop = true\n"
        );
        assert_eq!(expanded(&text).cells().len(), 14 * 6 + 14 * 20);
    }

    #[test]
    fn a_plan_without_a_matrix_is_one_cell() {
        let text = PLAN.split("[matrix]").next().unwrap();
        let one = expanded(text);
        assert_eq!((one.cells().len(), one.trials().len()), (1, 1));
        assert!(one.parameters(0).is_empty());
    }

    #[test]
    fn a_wrong_axis_points_at_its_value() {
        for (from, to, line, words) in [
            ("size = {", "sise = {", 15, "not a field"),
            ("[\"udp\", \"tcp\"]", "[\"udp\", \"udq\"]", 14, "unknown protocol"),
            ("[\"udp\", \"tcp\"]", "[]", 14, "empty"),
            ("\"half\", \"full\"]", "\"half\", \"all\"]", 17, "no load 'all'"),
            ("when = { protocol", "when = { relay", 19, "no axis"),
            ("from = \"100B\"", "from = \"-100B\"", 15, "-100B"),
        ] {
            assert!(PLAN.contains(from), "{from}");
            let source = Source::parse(&PLAN.replacen(from, to, 1)).unwrap();
            let error = expand(&source, 1).unwrap_err();
            let at = error.at.clone().unwrap_or_else(|| panic!("{to}: {error}"));
            assert_eq!(at.line, line, "{to}: {error}");
            assert!(error.to_string().contains(words), "{to}: {error}");
        }
    }

    #[test]
    fn a_matrix_beyond_measure_is_refused_and_not_expanded() {
        let large = "{ from = 1, to = 100000, step = 1 }";
        let text = PLAN
            .replace("[\"udp\", \"tcp\"]", "[\"udp\"]")
            .replace("load = [\"none\"", &format!("count = {large}\nload = [\"none\""));
        let text = text.split("[[constraint]]").next().unwrap();
        let error = expand(&Source::parse(text).unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("1 x 14 x 6 x 100000 x 3"), "{error}");
    }
}
