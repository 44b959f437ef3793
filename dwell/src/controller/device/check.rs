//! `dwell device check`: connects to devices and stores what they can measure.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use dwell_fleet::{Device, FleetError, NodeBinaries, check_devices};
use dwell_node_cli::{Exit, Failure, terminal};
use dwell_results::device::{
    KnownDevice, Lacks, StoredAnswer, in_use, lacks, lease_json, lease_object, one_line,
};
use dwell_results::{amounts, chain};
use dwell_store::{CheckResult, Lease, Store};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::super::data::DataArgs;
use super::catalogue::{open, select};

/// Maximum number of groups of devices whose lacking privileges are printed.
const MAX_GROUPS: usize = 4;

/// Arguments of `device check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Copies the node program for the device's architecture to a directory of the user there, if it is not \
there yet, and runs `doctor`. Nothing keeps running. The result is stored with its date; a failure, \
too. A device that a run uses is not checked, because that would disturb it.\n\
Exit codes: 0 all devices answered; 1 some did not; 2 usage error; 130 interrupted.")]
pub(super) struct Args {
    /// Names of devices [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Check the devices with this tag; may be repeated
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<String>,

    /// Print the results as one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// The result for one device.
enum Outcome {
    Answer(Box<StoredAnswer>),
    Failed(String),
    Leased(Lease),
    /// Leased to a run of another data directory or controller.
    LeasedElsewhere(dwell_protocol::Lease),
}

/// A device that was checked, or is in use.
struct Checked<'a> {
    device: &'a Device,
    /// Time of the check; `None` if the device is in use.
    at: Option<String>,
    outcome: Outcome,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut store = open(&args.data)?;
    let selected = select(&store, &args.data, &args.names, &args.tag)?;
    check(&mut store, &selected, args.json)
}

/// Checks devices, stores the results as they come, and prints them.
pub(super) fn check(
    store: &mut Store,
    selected: &[KnownDevice],
    json: bool,
) -> Result<Exit, Failure> {
    let program = std::env::current_exe().context("cannot locate the dwell executable")?;
    let binaries = NodeBinaries::find(&program)?;
    let mut report = Report::new(selected, json);
    let leases = store.leases()?;
    let lease_of = |known: &KnownDevice| {
        leases.iter().find(|lease| lease.device == known.row.name && !lease.stale)
    };
    for known in selected {
        if let Some(lease) = lease_of(known) {
            let outcome = Outcome::Leased(lease.clone());
            report.add(Checked { device: &known.device, at: None, outcome });
        }
    }
    let free: Vec<&KnownDevice> =
        selected.iter().filter(|known| lease_of(known).is_none()).collect();
    let devices: Vec<Device> = free.iter().map(|known| known.device.clone()).collect();
    let mut stored = Ok(());
    let stop = Arc::new(AtomicBool::new(false));
    dwell_node_cli::on_signal(&stop)?;
    check_devices(&devices, &binaries, &stop, &mut |index, answer| {
        let known = free[index];
        if let Err(FleetError::Leased { lease, .. }) = &answer {
            let outcome = Outcome::LeasedElsewhere(lease.clone());
            report.add(Checked { device: &known.device, at: None, outcome });
            return;
        }
        let answer = answer.map(StoredAnswer::from).map_err(|error| reason(&known.device, &error));
        match result(&answer).and_then(|result| Ok(store.add_check(&known.row, &result)?)) {
            Ok(at) => {
                let answered = |answer| Outcome::Answer(Box::new(answer));
                let outcome = answer.map_or_else(Outcome::Failed, answered);
                report.add(Checked { device: &known.device, at: Some(at), outcome });
            }
            Err(failure) => stored = Err(failure),
        }
    });
    stored?;
    let exit = report.conclude()?;
    Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { exit })
}

/// The result in the form that is stored.
fn result(answer: &Result<StoredAnswer, String>) -> Result<CheckResult, Failure> {
    Ok(match answer {
        Ok(answer) => CheckResult::Answer {
            arch: answer.arch.clone(),
            kernel: answer.kernel.clone(),
            build: answer.build.clone(),
            answer: serde_json::to_string(answer)?,
        },
        Err(reason) => CheckResult::Error(reason.clone()),
    })
}

/// Formats an error with its causes, without the name of the device.
pub(super) fn reason(device: &Device, error: &dyn std::error::Error) -> String {
    let text = chain(error);
    let of_device = format!("device {}: ", device.name);
    text.strip_prefix(&of_device).unwrap_or(&text).to_owned()
}

/// Prints results as they come.
struct Report<'a> {
    json: bool,
    /// Width of the column of names.
    width: usize,
    all: usize,
    checked: Vec<Checked<'a>>,
    bar: Option<ProgressBar>,
    printed: io::Result<()>,
}

impl<'a> Report<'a> {
    fn new(selected: &[KnownDevice], json: bool) -> Self {
        let bar = (selected.len() > 1 && io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("checking {bar:24} {pos}/{len} devices")
                .expect("the template is constant");
            ProgressBar::new(selected.len() as u64).with_style(style)
        });
        let width = selected.iter().map(|known| known.row.name.len()).max().unwrap_or(0);
        Self { json, width, all: selected.len(), checked: Vec::new(), bar, printed: Ok(()) }
    }

    fn add(&mut self, checked: Checked<'a>) {
        if !self.json {
            let (name, width) = (&checked.device.name, self.width);
            let line = format!("{name:width$}  {}", one_line(&text(&checked.outcome)));
            let print = || super::super::print(&line);
            let printed = match &self.bar {
                Some(bar) => bar.suspend(print),
                None => print(),
            };
            if self.printed.is_ok() {
                self.printed = printed;
            }
        }
        self.checked.push(checked);
        if let Some(bar) = &self.bar {
            bar.set_position(self.checked.len() as u64);
        }
    }

    fn conclude(mut self) -> Result<Exit, Failure> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.printed?;
        let is_answer = |checked: &&Checked| matches!(checked.outcome, Outcome::Answer(_));
        let answered = self.checked.iter().filter(is_answer).count();
        let mut out = terminal::stdout();
        if self.json {
            self.checked.sort_by(|a, b| a.device.name.cmp(&b.device.name));
            let devices: Vec<Value> = self.checked.iter().map(object).collect();
            let object = json!({
                "schema": "dwell.device-check/1",
                "checked": devices.len(),
                "answered": answered,
                "devices": devices,
            });
            writeln!(out, "{object:#}")?;
        } else {
            if self.all > 1 {
                writeln!(out, "{answered} of {} devices answered", self.all)?;
            }
            print_groups(&mut out, &self.checked)?;
        }
        Ok(if answered == self.all { Exit::Measured } else { Exit::Failed })
    }
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answer(answer) => {
            let copied = match answer.uploaded_bytes {
                0 => String::new(),
                bytes => format!(", {} copied", amounts::bytes(bytes)),
            };
            format!(
                "answered after {:.2} s: {}, kernel {}, node {}{copied}",
                answer.connect_ns as f64 / 1e9,
                answer.arch,
                answer.kernel,
                answer.build
            )
        }
        Outcome::Failed(reason) => format!("failed: {reason}"),
        Outcome::Leased(lease) => format!("not checked: {}", in_use(lease)),
        Outcome::LeasedElsewhere(lease) => format!("not checked: in use by {lease}"),
    }
}

/// Returns an element of `devices` in `dwell.device-check/1`.
fn object(checked: &Checked<'_>) -> Value {
    let (state, answer, error, lease) = match &checked.outcome {
        Outcome::Answer(answer) => ("answered", Some(answer), None, None),
        Outcome::Failed(reason) => ("failed", None, Some(reason), None),
        Outcome::Leased(lease) => ("leased", None, None, Some(lease_object(lease))),
        Outcome::LeasedElsewhere(lease) => {
            let object = lease_json(&lease.run, &lease.owner, &lease.since, false);
            ("leased", None, None, Some(object))
        }
    };
    json!({
        "name": checked.device.name,
        "destination": checked.device.destination,
        "state": state,
        "at": checked.at,
        "answer": answer,
        "privileges": answer.and_then(|answer| lacks(checked.device, answer)),
        "error": error,
        "lease": lease,
    })
}

/// Prints the lacking privileges. Devices that lack the same are one group.
fn print_groups(out: &mut impl Write, checked: &[Checked<'_>]) -> io::Result<()> {
    let mut groups: Vec<(Lacks, Vec<&str>)> = Vec::new();
    for checked in checked {
        let Outcome::Answer(answer) = &checked.outcome else { continue };
        let Some(lacks) = lacks(checked.device, answer) else { continue };
        let name = checked.device.name.as_str();
        match groups.iter_mut().find(|(other, _)| *other == lacks) {
            Some((_, names)) => names.push(name),
            None => groups.push((lacks, vec![name])),
        }
    }
    for (lacks, names) in groups.iter().take(MAX_GROUPS) {
        writeln!(out)?;
        print_lacks(out, lacks, names)?;
    }
    if groups.len() > MAX_GROUPS {
        let rest: Vec<&str> =
            groups.iter().skip(MAX_GROUPS).flat_map(|(_, names)| names).copied().collect();
        let rest = rest.join(", ");
        writeln!(out, "\nmore devices lack privileges: {rest}; see `dwell device show NAME`")?;
    }
    Ok(())
}

/// Prints lacking privileges with their remedies.
pub(super) fn print_lacks(out: &mut impl Write, lacks: &Lacks, names: &[&str]) -> io::Result<()> {
    let all = names.join(", ");
    writeln!(out, "{all}: refused without privileges")?;
    let width = lacks.lacking.iter().map(|lack| lack.ability.chars().count()).max().unwrap_or(0);
    for lack in &lacks.lacking {
        let root_only = if lack.root_only { " (root only)" } else { "" };
        writeln!(out, "  {:width$}  {}{root_only}", one_line(&lack.ability), lack.loss)?;
    }
    let name = if let [name] = names { name } else { "NAME" };
    let Some(sudoers) = &lacks.sudoers else {
        return print_setcap(out, lacks);
    };
    writeln!(
        out,
        "To get all of them, run the node as root: add this line to /etc/sudoers.d/dwell on the device \
         with `visudo -f`, then run `dwell device edit {name} --sudo`. The user owns the program, so the \
         rule gives the user root:"
    )?;
    writeln!(out, "  {}", one_line(sudoers))?;
    print_setcap(out, lacks)
}

fn print_setcap(out: &mut impl Write, lacks: &Lacks) -> io::Result<()> {
    if let Some(setcap) = &lacks.setcap {
        writeln!(
            out,
            "Or grant capabilities on the device, again after each new version of dwell:"
        )?;
        writeln!(out, "  {}", one_line(setcap))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_lack_the_same_are_one_group() {
        let denied = json!({ "abilities": [{
            "name": "real-time scheduling",
            "available": false,
            "reason": "Operation not permitted (os error 1)",
        }] });
        let answer = |dir: &str| StoredAnswer {
            uid: 1_000,
            dir: dir.to_owned(),
            program: format!("{dir}/dwell-node-5f"),
            doctor: denied.clone(),
            ..StoredAnswer::default()
        };
        let devices = ["a", "b", "c", "d"].map(|name| Device::new(name, "pi@h").unwrap());
        let outcomes = [
            Outcome::Answer(Box::new(answer("/home/pi/.cache/dwell"))),
            Outcome::Failed("no answer".into()),
            Outcome::Answer(Box::new(answer("/home/pi/.cache/dwell"))),
            Outcome::Answer(Box::new(answer("/tmp/dwell-1000"))),
        ];
        let checked: Vec<Checked<'_>> = devices
            .iter()
            .zip(outcomes)
            .map(|(device, outcome)| Checked { device, at: None, outcome })
            .collect();
        let mut out = Vec::new();
        print_groups(&mut out, &checked).unwrap();
        let text = String::from_utf8(out).unwrap();
        let heads: Vec<_> = text.lines().filter(|line| line.contains("refused without")).collect();
        assert_eq!(heads, ["a, c: refused without privileges", "d: refused without privileges"]);
        assert_eq!(text.matches("pi ALL=(root) NOPASSWD: /home/pi/.cache").count(), 1, "{text}");
        assert!(text.contains("`dwell device edit d --sudo`"), "{text}");
    }
}
