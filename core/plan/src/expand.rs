//! Expansion of a matrix into cells, and of cells into ordered trials.

use std::collections::{BTreeMap, HashMap};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use toml::Table;

use crate::axis::{AxisValues, label};
use crate::constraint::constraints;
use crate::error::PlanError;
use crate::measurement::MeasurementKind;
use crate::plan::{Order, Plan};
use crate::source::Source;

/// Maximum number of cells; callers ask for confirmation far below it.
pub(crate) const MAX_CELLS: usize = 10_000_000;

/// One combination of values: for each of its axes, the index of the axis and of the value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(pub(crate) Vec<(u16, u32)>);

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Number from 1, cell by cell in matrix order.
    pub number: u32,
    /// Index of its cell, from 0.
    pub cell: u32,
    /// Repetition of its cell, from 1.
    pub repetition: u32,
}

/// A plan expanded into trials.
#[derive(Clone, Debug)]
pub struct Expansion {
    source: Source,
    plan: Plan,
    axes: Vec<AxisValues>,
    cells: Vec<Cell>,
    /// In execution order.
    trials: Vec<Trial>,
    /// Seed of the order.
    seed: u64,
}

/// Expands the plan of `source`. `seed` decides the order of trials unless the plan has a seed.
///
/// # Errors
/// The first error, with its position. Every value of every axis is checked separately; errors of
/// combinations are found by [`Expansion::plan_of`].
pub fn expand(source: &Source, seed: u64) -> Result<Expansion, PlanError> {
    let plan = Plan::read(source)?;
    let mut axes = axes_of(source, plan.measurement.kind(), &plan.matrix, "matrix")?;
    let base = axes.len();
    // Count the cells first, so that an oversized matrix fails immediately.
    let mut cells = product(source, &axes, &(0..base).collect::<Vec<_>>())?;
    check_each_value(source, &axes)?;
    let constraints = constraints(source, &plan, &mut axes)?;
    for constraint in &constraints {
        cells = constraint.apply(source, &axes, cells)?;
    }
    if cells.is_empty() {
        return Err(source.error("constraint", "the constraints drop every cell"));
    }
    let seed = plan.trials.seed.unwrap_or(seed);
    let trials = order(source, &plan, &axes, &cells, seed)?;
    Ok(Expansion { source: source.clone(), plan, axes, cells, trials, seed })
}

impl Expansion {
    /// The plan without the values of any cell.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Source of the plan.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The trials in execution order.
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// The cells in matrix order.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The seed of the order.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The axes by name, with every value that any cell has.
    pub fn axes(&self) -> Vec<AxisValues> {
        let mut used: Vec<Vec<bool>> =
            self.axes.iter().map(|axis| vec![false; axis.values.len()]).collect();
        for (number, index) in self.cells.iter().flat_map(|cell| &cell.0) {
            used[*number as usize][*index as usize] = true;
        }
        let mut merged: Vec<AxisValues> = Vec::new();
        // By axis name: its index in `merged`, and whether any cell has each value.
        let mut known: HashMap<&str, (usize, HashMap<String, bool>)> = HashMap::new();
        for (axis, used) in self.axes.iter().zip(&used) {
            let (place, values) = known.entry(&axis.name).or_insert_with(|| {
                merged.push(AxisValues { values: Vec::new(), ..axis.clone() });
                (merged.len() - 1, HashMap::new())
            });
            for (value, used) in axis.values.iter().zip(used) {
                let is_used = values.entry(value.to_string()).or_insert_with(|| {
                    merged[*place].values.push(value.clone());
                    false
                });
                *is_used |= used;
            }
        }
        // Drop values that a constraint replaced in every cell.
        for axis in &mut merged {
            let (_, values) = &known[axis.name.as_str()];
            axis.values.retain(|value| values[&value.to_string()]);
        }
        merged
    }

    /// Values of a cell by axis, as written in the plan.
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

    /// Returns the plan with the values of a cell.
    ///
    /// # Errors
    /// If these values are incompatible.
    pub fn plan_of(&self, cell: u32) -> Result<Plan, PlanError> {
        let mut table = without_matrix(&self.source);
        for (axis, value) in &self.cells[cell as usize].0 {
            let axis = &self.axes[*axis as usize];
            axis.path
                .put(&mut table, axis.values[*value as usize].clone())
                .map_err(|message| self.source.error(&axis.path.to_string(), message))?;
        }
        let plan = Plan::with(&self.source, table).and_then(|plan| {
            plan.check_together(&self.source)?;
            Ok(plan)
        });
        plan.map_err(|error| {
            let mut error = self.at_axis_value(cell, error);
            let cell = self.parameters(cell);
            let cell: Vec<_> = cell.iter().map(|(name, value)| format!("{name} {value}")).collect();
            if !cell.is_empty() {
                error.message = format!("{} (in the cell {})", error.message, cell.join(", "));
            }
            error
        })
    }

    /// Moves an error about a field set by a matrix axis to the value in the matrix.
    fn at_axis_value(&self, cell: u32, error: PlanError) -> PlanError {
        let set_it = self.cells[cell as usize].0.iter().find(|(axis, _)| {
            let axis = &self.axes[*axis as usize];
            axis.path.to_string() == error.field && axis.replaced.is_empty()
        });
        let Some((axis, value)) = set_it else { return error };
        let name = &self.axes[*axis as usize].name;
        let is_first = self.axes.iter().position(|axis| axis.name == *name) == Some(*axis as usize);
        if !is_first {
            return error;
        }
        let at = self.source.error(&format!("matrix.{name}[{value}]"), "").at;
        PlanError { at: at.or(error.at), ..error }
    }
}

/// The plan's table without its matrix, which the values of a cell replace.
fn without_matrix(source: &Source) -> Table {
    let table = source.table().iter();
    table
        .filter(|(name, _)| !["matrix", "constraint"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The axes of a table, in file order.
pub(crate) fn axes_of(
    source: &Source,
    measured: MeasurementKind,
    matrix: &Table,
    at: &str,
) -> Result<Vec<AxisValues>, PlanError> {
    let mut axes: Vec<AxisValues> = Vec::new();
    for (name, value) in matrix {
        let place = format!("{at}.{name}");
        let path = measured.path_of(name).ok_or_else(|| {
            source.error(
                &place,
                format!(
                    "not a field of a plan; an axis is a field of [{}], load, {}, or a path like \
                     \"topology.link.rate\" in quotes",
                    measured.name(),
                    if measured == MeasurementKind::Pace { "flows" } else { "relay" }
                ),
            )
        })?;
        if let Some(other) = axes.iter().find(|axis| axis.path.overlaps(&path)) {
            let message = format!("sets the same field as the axis '{}'; remove one", other.name);
            return Err(source.error(&place, message));
        }
        let axis = AxisValues::read(name, path, value).map_err(|error| match error.element {
            None => source.error(&place, error.message),
            Some(number) => {
                let one = source.error(&format!("{place}[{number}]"), error.message);
                PlanError { field: place.clone(), ..one }
            }
        })?;
        axes.push(match source.override_of(&axis.path.to_string(), &place) {
            Some(value) => axis.with_single_value(value.clone()),
            None => axis,
        });
    }
    if axes.len() > usize::from(u16::MAX) {
        return Err(source.error(at, "too many axes"));
    }
    Ok(axes)
}

/// Checks every value of every axis separately.
fn check_each_value(source: &Source, axes: &[AxisValues]) -> Result<(), PlanError> {
    for axis in axes {
        for (number, value) in axis.values.iter().enumerate() {
            let mut table = without_matrix(source);
            // Incompatible fields are reported per cell; only this field is checked here.
            let place = format!("matrix.{}", axis.name);
            axis.path
                .put(&mut table, value.clone())
                .map_err(|message| source.error(&place, message))?;
            if let Err(error) = Plan::with(source, table)
                && error.field == axis.path.to_string()
            {
                let one = source.error(&format!("{place}[{number}]"), error.message);
                return Err(PlanError { field: place, ..one });
            }
        }
    }
    Ok(())
}

/// All combinations of the values of these axes; the last axis varies fastest.
pub(crate) fn product(
    source: &Source,
    axes: &[AxisValues],
    chosen: &[usize],
) -> Result<Vec<Cell>, PlanError> {
    let lengths = chosen.iter().map(|&axis| axes[axis].values.len());
    let max = source.max_cells;
    let count = lengths.clone().try_fold(1_usize, usize::checked_mul);
    let count = count.filter(|count| *count <= max).ok_or_else(|| {
        let sizes: Vec<_> = lengths.map(|n| n.to_string()).collect();
        source.error("matrix", format!("{} are more than {max} cells", sizes.join(" x ")))
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

/// The lab that a cell needs: its values of topology axes.
fn lab_of<'a>(axes: &[AxisValues], Cell(values): &'a Cell) -> Vec<&'a (u16, u32)> {
    values.iter().filter(|(axis, _)| axes[*axis as usize].name.starts_with("topology.")).collect()
}

fn order(
    source: &Source,
    plan: &Plan,
    axes: &[AxisValues],
    all: &[Cell],
    seed: u64,
) -> Result<Vec<Trial>, PlanError> {
    let cells = all.len();
    let repetitions = plan.trials.repetitions;
    let count = cells as u64 * u64::from(repetitions);
    let max = source.max_cells;
    if count > max as u64 {
        return Err(source.error(
            "trials.repetitions",
            format!("{cells} cells x {repetitions} repetitions are more than {max} trials"),
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
                // Group trials by lab, because creating a lab takes longer than many trials. The
                // order of labs is random too.
                let mut labs: Vec<Vec<&(u16, u32)>> = Vec::new();
                block.sort_by_cached_key(|trial| {
                    let lab = lab_of(axes, &all[trial.cell as usize]);
                    labs.iter().position(|known| *known == lab).unwrap_or_else(|| {
                        labs.push(lab);
                        labs.len() - 1
                    })
                });
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
    use std::collections::HashSet;

    use toml::Value;

    use super::*;

    /// Sweep of Miya 2020: relay modes are modelled as protocols, and "encrypt" has its own packet
    /// rates.
    const PLAN: &str = r#"
version = 1
name = "miya-2020"
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
    fn constraint_with_a_matrix_replaces_axes_of_its_cells() {
        let sweep = expanded(PLAN);
        assert_eq!(sweep.cells().len(), 14 * 6 * 3 + 14 * 20 * 3);
        let last = sweep.cells().len() as u32 - 1;
        let parameters = sweep.parameters(last);
        assert_eq!(parameters["protocol"], "tcp");
        assert_eq!(parameters["rate"], "400pps");
        let plan = sweep.plan_of(last).unwrap();
        assert_eq!(
            (plan.measurement.ping().unwrap().parameters.size.unwrap().0, plan.load.as_str()),
            (1400, "full")
        );
        let rate = sweep.axes().into_iter().find(|axis| axis.name == "rate").unwrap();
        assert_eq!(rate.values.len(), 6 + 18, "both ranges contain 200pps and 400pps");
    }

    #[test]
    fn blocks_contain_every_cell_once_in_seeded_order() {
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
    fn each_lab_is_created_once_per_block() {
        let axis = "[matrix]\n\"topology.link.rate\" = [\"1Mbit/s\", \"none\", \"9Mbit/s\"]";
        let text = PLAN.replace("[matrix]", axis) + "[trials]\nrepetitions = 4\n";
        let plan = expanded(&text);
        let mut firsts = HashSet::new();
        for block in plan.trials().chunks(plan.cells().len()) {
            let lab = |trial: &Trial| plan.parameters(trial.cell)["topology.link.rate"].clone();
            let mut labs: Vec<String> = block.iter().map(lab).collect();
            labs.dedup();
            assert_eq!(labs.len(), 3, "{labs:?}");
            firsts.insert(labs.remove(0));
            let sizes = block.iter().map(|trial| plan.parameters(trial.cell)["size"].clone());
            let mut sizes: Vec<String> = sizes.collect();
            let cells = sizes.len();
            sizes.dedup();
            assert!(sizes.len() > cells / 2, "cells are in random order within a lab");
        }
        assert!(firsts.len() > 1, "the first lab is random");
    }

    #[test]
    fn dropped_cells_are_not_expanded() {
        let text = format!(
            "{PLAN}[[constraint]]\nwhen = {{ load = [\"half\", \"full\"] }}\ndrop = true\n"
        );
        assert_eq!(expanded(&text).cells().len(), 14 * 6 + 14 * 20);
    }

    #[test]
    fn constraint_compares_quantities_not_notation() {
        let pps = PLAN.split("[[constraint]]").next().unwrap();
        let with = |when: &str| {
            expanded(&format!("{pps}[[constraint]]\nwhen = {{ {when} }}\ndrop = true\n"))
        };
        let all = expanded(pps).cells().len();
        assert_eq!(with("rate = \"1000pps\"").cells().len(), all / 6 * 5);
        assert_eq!(with("size = [\"1kB\", \"0.1kB\"]").cells().len(), all / 14 * 12);
        assert_eq!(with("\"ping.size\" = \"1000B\"").cells().len(), all / 14 * 13);
    }

    #[test]
    fn constraint_on_unknown_value_is_refused_in_place() {
        for (when, column, words) in [
            ("protocol = \"icmp\"", 21, "known are udp, tcp"),
            ("size = \"1050B\"", 17, "'1050B' is not a value"),
            ("load = [\"none\", \"haf\"]", 26, "none, half, full"),
        ] {
            let text = format!("{PLAN}[[constraint]]\nwhen = {{ {when} }}\ndrop = true\n");
            let error = expand(&Source::parse(&text).unwrap(), 1).unwrap_err();
            let at = error.at.clone().unwrap();
            assert_eq!((at.line, at.column), (22, column), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        // Values of an earlier constraint's axis are known.
        let text = format!("{PLAN}[[constraint]]\nwhen = {{ rate = \"20pps\" }}\ndrop = true\n");
        assert_eq!(expanded(&text).cells().len(), 14 * 6 * 3 + 14 * 19 * 3);
    }

    #[test]
    fn equal_values_are_merged_in_results() {
        let text = PLAN.replace(
            "from = \"20pps\", to = \"400pps\", step = \"20pps\"",
            "from = \"0.4kpps\", to = \"1kpps\", step = \"0.2kpps\"",
        );
        let text = text.replace("matrix = { rate", "matrix = { \"ping.rate\"");
        let text = text.replace(
            "{ from = \"200pps\", to = \"1200pps\", step = \"200pps\" }",
            "[\"400pps\", \"1000pps\"]",
        );
        let one = expanded(&text);
        let rate = one.axes().into_iter().find(|axis| axis.name == "rate").unwrap();
        assert_eq!(rate.labels(), ["400pps", "1000pps", "600pps", "800pps"]);
        let last = one.parameters(one.cells().len() as u32 - 1);
        assert_eq!(last["rate"], "1000pps");
        assert!(!last.contains_key("ping.rate"));
    }

    #[test]
    fn axes_of_a_large_matrix_are_listed_quickly() {
        let sizes = "{ from = \"100B\", to = \"1400B\", step = \"100B\" }";
        let mut large = expanded(&PLAN.replace(sizes, "[\"100B\"]"));
        let size = large.axes.iter().position(|axis| axis.name == "size").unwrap();
        let values = 1..=100_000_u32;
        large.axes[size].values =
            values.clone().map(|size| Value::String(format!("{size}B"))).collect();
        // No cell has the last value.
        large.cells = (0..99_999).map(|value| Cell(vec![(size as u16, value)])).collect();
        let began = std::time::Instant::now();
        let axes = large.axes();
        // Comparing every pair of values would take ten billion comparisons.
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
        assert_eq!(axes[size].values.len(), 99_999);
        assert_eq!(axes[size].labels()[99_998], "99999B");
        assert!(axes[0].values.is_empty(), "no cell has a protocol");
    }

    #[test]
    fn overridden_axis_keeps_one_value_and_its_constraints() {
        let set = |settings: &[&str]| {
            let mut source = Source::parse(PLAN).unwrap();
            settings.iter().for_each(|setting| source.set(setting).unwrap());
            expand(&source, 1).unwrap()
        };
        let all = set(&[]).cells().len();
        assert_eq!(all, 14 * 6 * 3 + 14 * 20 * 3);
        let one = set(&["ping.size=550B"]);
        assert_eq!(one.cells().len(), all / 14);
        assert!((0..all / 14).all(|cell| one.parameters(cell as u32)["size"] == "550B"));
        assert_eq!(
            one.plan_of(0).unwrap().measurement.ping().unwrap().parameters.size.unwrap().0,
            550
        );
        assert_eq!(set(&["load=none"]).cells().len(), all / 3);
        // The constraint applies to tcp and has its own rate.
        assert_eq!(set(&["ping.protocol=udp"]).cells().len(), 14 * 6 * 3);
        assert_eq!(set(&["ping.protocol=tcp"]).cells().len(), 14 * 20 * 3);
        assert_eq!(set(&["ping.rate=50pps"]).cells().len(), 2 * 14 * 3);
        assert_eq!(
            set(&["ping.rate=50pps", "matrix.rate=[\"1pps\", \"2pps\"]"]).axes()[2].values.len(),
            3
        );
        let mut source = Source::parse(PLAN).unwrap();
        source.set("ping.size=-5B").unwrap();
        let error = expand(&source, 1).unwrap_err();
        assert!(error.to_string().contains("on the command line"), "{error}");
    }

    #[test]
    fn two_axes_of_one_field_are_refused() {
        for (second, words) in [
            ("\"ping.size\" = [\"200B\"]", "the axis 'size'"),
            (
                "\"loads.half\" = [{}]\n\"loads.half.cpu[0].level\" = [\"1%\"]",
                "the axis 'loads.half'",
            ),
        ] {
            let text = PLAN.replace("load = [", &format!("{second}\nload = ["));
            let error = expand(&Source::parse(&text).unwrap(), 1).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.at.is_some(), "{error}");
        }
    }

    #[test]
    fn field_in_a_list_is_an_axis_by_its_path() {
        let text = PLAN.replace(
            "load = [\"none\", \"half\", \"full\"]",
            "\"loads.half.cpu[0].level\" = { from = \"10%\", to = \"90%\", step = \"40%\" }",
        );
        let text = text.replace("version = 1", "version = 1\nload = \"half\"");
        let levels = expanded(&text);
        let axes = levels.axes();
        assert_eq!(axes[3].numbers(), Some((vec![0.1, 0.5, 0.9], "1")));
        let plan = levels.plan_of(2).unwrap();
        assert_eq!(plan.load().cpu[0].level.to_string(), "90%");
        let text = text.replace("cpu[0]", "cpu[1]");
        let error = expand(&Source::parse(&text).unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("has 1 elements"), "{error}");
        assert_eq!(error.at.unwrap().line, 18);
        let text = text.replace("cpu[1].level", "cpu[0].levle");
        let error = expand(&Source::parse(&text).unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("levle"), "{error}");
    }

    #[test]
    fn plan_without_a_matrix_has_one_cell() {
        let text = PLAN.split("[matrix]").next().unwrap();
        let one = expanded(text);
        assert_eq!((one.cells().len(), one.trials().len()), (1, 1));
        assert!(one.parameters(0).is_empty());
    }

    #[test]
    fn axis_error_points_at_the_invalid_value() {
        for (from, to, line, words) in [
            ("size = {", "sise = {", 15, "not a field"),
            ("[\"udp\", \"tcp\"]", "[\"udp\", \"udq\"]", 14, "unknown protocol"),
            ("[\"udp\", \"tcp\"]", "[]", 14, "empty"),
            ("\"half\", \"full\"]", "\"half\", \"all\"]", 17, "unknown load 'all'"),
            ("when = { protocol", "when = { relay", 19, "unknown axis"),
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
    fn duplicate_value_is_marked() {
        for (list, column, width) in
            [("[\"64B\", \"100B\", \"64B\"]", 24, 5), ("[\"64B\", \"1kB\", \"1000B\"]", 23, 7)]
        {
            let sizes = "{ from = \"100B\", to = \"1400B\", step = \"100B\" }";
            let source = Source::parse(&PLAN.replace(sizes, list)).unwrap();
            let error = expand(&source, 1).unwrap_err();
            assert_eq!(error.field, "matrix.size");
            let at = error.at.clone().unwrap();
            assert_eq!((at.line, at.column, at.width), (15, column, width), "{error}");
        }
    }

    #[test]
    fn oversized_matrix_is_refused_without_expansion() {
        let large = "{ from = 1, to = 100000, step = 1 }";
        let text = PLAN
            .replace("[\"udp\", \"tcp\"]", "[\"udp\"]")
            .replace("load = [\"none\"", &format!("count = {large}\nload = [\"none\""));
        let text = text.split("[[constraint]]").next().unwrap();
        let error = expand(&Source::parse(text).unwrap(), 1).unwrap_err();
        assert!(error.to_string().contains("1 x 14 x 6 x 100000 x 3"), "{error}");
    }
}
