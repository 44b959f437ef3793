//! What a plan would do, before it is started: mistakes, trials, cost and files that it names.

use dwell_plan::{Estimate, Expansion, Measurement, PlanError, Source, Topology, expand};
use dwell_protocol::KeySource;
use dwell_results::amounts;
use dwell_units::Nanos;
use serde::Serialize;
use toml::Value;

/// Maximum length of a plan, in bytes.
pub(crate) const MAX_PLAN_LEN: usize = 256 << 10;

/// Maximum number of trials of a plan from the web. Larger ones are started with `dwell run`.
const MAX_TRIALS: usize = 20_000;

/// Maximum number of cells whose combination of values is checked and whose cost is added up. For
/// more, the cost is that of one cell times their number.
const MAX_CHECKED_CELLS: usize = 2_000;

/// Amounts above which a plan needs confirmation.
const MAX_UNCONFIRMED_TRIALS: usize = 10_000;
const MAX_UNCONFIRMED_TIME: Nanos = Nanos::from_secs(24 * 3_600);
const MAX_UNCONFIRMED_BYTES: u64 = 100_000_000_000;
const MAX_UNCONFIRMED_BYTES_PER_SECOND: f64 = 125e6;
const MAX_UNCONFIRMED_PACKETS_PER_SECOND: f64 = 200e3;

/// A mistake in a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanMistake {
    /// Line, from 1; null for a mistake in a setting or for something missing.
    pub(crate) line: Option<usize>,
    /// Column in characters, from 1.
    pub(crate) column: Option<usize>,
    /// Number of characters to mark.
    pub(crate) width: Option<usize>,
    /// Field, such as `ping.size`; empty for the plan as a whole.
    pub(crate) field: String,
    /// The problem, and what would be right.
    pub(crate) message: String,
}

impl From<PlanError> for PlanMistake {
    fn from(error: PlanError) -> Self {
        Self {
            line: error.at.as_ref().map(|at| at.line),
            column: error.at.as_ref().map(|at| at.column),
            width: error.at.as_ref().map(|at| at.width),
            field: error.field,
            message: error.message,
        }
    }
}

/// An axis of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanAxis {
    /// Name, such as `size`.
    pub(crate) name: String,
    /// Values, as in the plan.
    pub(crate) values: Vec<String>,
}

/// What a plan would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanCheck {
    /// Mistakes. If there are any, the other fields are empty.
    pub(crate) errors: Vec<PlanMistake>,
    /// Name of the plan.
    pub(crate) name: String,
    /// Title of the plan.
    pub(crate) title: Option<String>,
    /// Number of trials.
    pub(crate) trials: usize,
    /// Number of combinations of values.
    pub(crate) cells: usize,
    /// Axes.
    pub(crate) axes: Vec<PlanAxis>,
    /// Expected time, for people; null if it depends on the replies.
    pub(crate) time: Option<String>,
    /// Expected time, in nanoseconds.
    pub(crate) time_ns: Option<i64>,
    /// Probes or packets sent; null if as many as fit.
    pub(crate) probes: Option<u64>,
    /// Bytes of IP packets; null if as many as fit.
    pub(crate) bytes: Option<u64>,
    /// Packets sent by loads.
    pub(crate) load_packets: u64,
    /// Bytes of IP packets of loads.
    pub(crate) load_bytes: u64,
    /// Roles that need a device; empty for a lab.
    pub(crate) roles: Vec<String>,
    /// Why the plan needs `confirmed`; null if it does not.
    pub(crate) needs_confirmation: Option<String>,
    /// Why the plan cannot be started from the web; null if it can.
    pub(crate) forbidden: Option<String>,
}

impl PlanCheck {
    fn mistake(error: PlanError) -> Self {
        Self { errors: vec![error.into()], ..Self::default() }
    }

    /// Whether the plan can be started, if it is confirmed where that is needed.
    pub(crate) const fn is_ok(&self) -> bool {
        self.errors.is_empty() && self.forbidden.is_none()
    }
}

/// Checks a plan with its settings (`PATH=VALUE`). Opens no file.
pub(crate) fn check_plan(text: &str, settings: &[String]) -> PlanCheck {
    let mut source = match Source::parse(text) {
        Ok(source) => source,
        Err(error) => return PlanCheck::mistake(error),
    };
    for setting in settings {
        if let Err(error) = source.set(setting) {
            return PlanCheck::mistake(error);
        }
    }
    // Its nodes are known only from the file, so nothing else can be checked.
    if let Some(path) = source.lab_files().first() {
        return PlanCheck {
            forbidden: Some(forbidden("topology.lab", path)),
            ..PlanCheck::default()
        };
    }
    source.set_max_cells(MAX_TRIALS);
    let checked = expand(&source, 0).and_then(|expansion| {
        let estimate = estimate(&expansion)?;
        Ok(summary(&expansion, &estimate))
    });
    checked.unwrap_or_else(PlanCheck::mistake)
}

fn forbidden(field: &str, path: &str) -> String {
    format!(
        "{field}: plans from the web cannot name files of the controller, such as {path}; start this \
         plan with `dwell run`"
    )
}

/// Cost of all cells, or of the first one times their number.
fn estimate(expansion: &Expansion) -> Result<Estimate, PlanError> {
    if expansion.cells().len() <= MAX_CHECKED_CELLS {
        return Estimate::of_all(expansion);
    }
    let one = Estimate::of(&expansion.plan_of(0)?);
    let count = expansion.trials().len() as u64;
    let times = |amount: u64| amount.saturating_mul(count);
    let time = |time: Nanos| Nanos(time.0.saturating_mul(count as i64));
    Ok(Estimate {
        time: time(one.time),
        sending: time(one.sending),
        probes: one.probes.map(times),
        bytes: one.bytes.map(times),
        load_packets: times(one.load_packets),
        load_bytes: times(one.load_bytes),
        ..one
    })
}

fn summary(expansion: &Expansion, estimate: &Estimate) -> PlanCheck {
    let plan = expansion.plan();
    let time = (!estimate.at_least).then_some(estimate.time);
    let axes = expansion.axes();
    PlanCheck {
        errors: Vec::new(),
        name: plan.name.clone(),
        title: plan.title.clone(),
        trials: expansion.trials().len(),
        cells: expansion.cells().len(),
        forbidden: key_file(expansion).map(|path| forbidden("relay.key", &path)),
        axes: axes
            .iter()
            .map(|axis| PlanAxis { name: axis.name.clone(), values: axis.labels() })
            .collect(),
        time: time.map(amounts::time),
        time_ns: time.map(|time| time.0),
        probes: estimate.probes,
        bytes: estimate.bytes,
        load_packets: estimate.load_packets,
        load_bytes: estimate.load_bytes,
        roles: match &plan.topology {
            Topology::Devices(roles) => roles.clone(),
            Topology::Lab(_) => Vec::new(),
        },
        needs_confirmation: reasons_to_confirm(expansion.trials().len(), estimate),
    }
}

/// The file of a relay's key. In a lab it is a file of the controller.
fn key_file(expansion: &Expansion) -> Option<String> {
    if let Measurement::Flow(flow) = &expansion.plan().measurement
        && let Some(relay) = &flow.relay
        && let KeySource::File(path) = &relay.key
    {
        return Some(path.display().to_string());
    }
    expansion.axes().iter().flat_map(|axis| &axis.values).find_map(file_in)
}

/// The first value of a key `file` in a table.
fn file_in(value: &Value) -> Option<String> {
    match value {
        Value::Table(table) => match table.get("file") {
            Some(file) => Some(file.as_str().map_or_else(|| file.to_string(), str::to_owned)),
            None => table.iter().find_map(|(_, value)| file_in(value)),
        },
        Value::Array(values) => values.iter().find_map(file_in),
        _ => None,
    }
}

/// States each amount of a plan that is large enough to be a mistake.
fn reasons_to_confirm(trials: usize, estimate: &Estimate) -> Option<String> {
    let mut reasons = Vec::new();
    if trials > MAX_UNCONFIRMED_TRIALS {
        reasons.push(format!("has {trials} trials"));
    }
    if estimate.time > MAX_UNCONFIRMED_TIME {
        reasons.push(format!("takes {}", amounts::time(estimate.time)));
    }
    let bytes = estimate.bytes.unwrap_or(0).saturating_add(estimate.load_bytes);
    if bytes > MAX_UNCONFIRMED_BYTES {
        reasons.push(format!("sends {}", amounts::bytes(bytes)));
    }
    let sending = estimate.sending.0 as f64 / 1e9;
    let per_second = |amount: u64| if sending > 0.0 { amount as f64 / sending } else { 0.0 };
    let rate = per_second(bytes);
    if rate > MAX_UNCONFIRMED_BYTES_PER_SECOND {
        reasons.push(format!("sends {:.1} Gbit/s while it measures", rate * 8.0 / 1e9));
    }
    let packets = estimate.probes.unwrap_or(0).saturating_add(estimate.load_packets);
    let rate = per_second(packets);
    if rate > MAX_UNCONFIRMED_PACKETS_PER_SECOND {
        reasons.push(format!("sends {:.0} packets per second while it measures", rate));
    }
    (!reasons.is_empty()).then(|| format!("this plan {}", reasons.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "version = 1\nname = \"x\"\ntitle = \"T\"\n[topology]\nlab = \"line:2\"\n[ping]\n\
        from = \"n1\"\nto = \"n2\"\ncount = 100\ninterval = \"10ms\"\n";

    fn confirmation(setting: &str) -> Option<String> {
        let check = check_plan(PLAN, &[setting.to_owned()]);
        assert_eq!(check.errors, [], "{setting}");
        check.needs_confirmation
    }

    #[test]
    fn cost_and_axes_are_stated() {
        let text =
            format!("{PLAN}[matrix]\nsize = [\"64B\", \"512B\"]\n[trials]\nrepetitions = 3\n");
        let check = check_plan(&text, &[]);
        assert!(check.is_ok(), "{check:?}");
        assert_eq!((check.trials, check.cells, check.name.as_str()), (6, 2, "x"));
        assert_eq!(check.axes[0].values, ["64B", "512B"]);
        assert!(check.time_ns.unwrap() > 6_000_000_000 && check.probes.unwrap() >= 600);
        assert_eq!((check.needs_confirmation, check.roles), (None, Vec::new()));
    }

    #[test]
    fn mistake_has_line_and_column() {
        let check = check_plan(&PLAN.replace("100", "-1"), &[]);
        assert_eq!((check.errors[0].line, check.errors[0].field.as_str()), (Some(9), "ping.count"));
        assert!(check.errors[0].column.is_some() && !check.is_ok());
        let check = check_plan(PLAN, &["ping".to_owned()]);
        assert_eq!(check.errors[0].line, None);
    }

    #[test]
    fn plan_that_would_flood_needs_confirmation() {
        assert_eq!(confirmation("ping.count=200"), None);
        for (setting, reason) in [
            ("trials.repetitions=10001", "10001 trials"),
            ("ping.count=10000000", "takes 27.8 h"),
            ("ping.interval=4us", "packets per second"),
        ] {
            let text = confirmation(setting).unwrap_or_default();
            assert!(text.contains(reason), "{setting}: {text}");
        }
    }

    #[test]
    fn oversized_plan_is_refused_without_expansion() {
        let check = check_plan(PLAN, &["trials.repetitions=1000000".to_owned()]);
        assert!(check.errors[0].message.contains("20000"), "{check:?}");
    }

    #[test]
    fn plan_cannot_name_files_of_the_controller() {
        let lab = check_plan(&PLAN.replace("line:2", "/etc/passwd.toml"), &[]);
        assert!(lab.forbidden.unwrap().contains("/etc/passwd.toml"));
        let set = check_plan(PLAN, &["topology.lab=secret.toml".to_owned()]);
        assert!(set.forbidden.unwrap().contains("secret.toml"));
        let axis = check_plan(&format!("{PLAN}[matrix]\n\"topology.lab\" = [\"a.toml\"]\n"), &[]);
        assert!(axis.forbidden.is_some());
        let flow = "version = 1\nname = \"x\"\n[topology]\nlab = \"line:3\"\n[flow]\nfrom = \"n1\"\n\
            to = \"n3\"\ncount = 100\nrate = \"1Mbit/s\"\n[relay]\non = \"n2\"\nmode = \"encrypt\"\n";
        let key = check_plan(&format!("{flow}key = {{ file = \"/etc/shadow\" }}\n"), &[]);
        assert!(key.forbidden.clone().is_some_and(|why| why.contains("/etc/shadow")), "{key:?}");
    }
}
