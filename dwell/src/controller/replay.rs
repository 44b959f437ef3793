//! `dwell replay`: repeats the experiment of a founding document, and judges its claims.

mod on_devices;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use dwell_documents::{LabProgram, REPLAYS, Replay, ReplayCase, ReplayPlan, lines_of};
use dwell_node_cli::{Exit, Failure, say, terminal};
use dwell_plan::{Expansion, Source, expand};
use dwell_report::Table;
use dwell_report::model::{Claim, ClaimVerdict};
use dwell_results::{amounts, judged_data};
use serde_json::{Value, json};

use super::data::{DataArgs, find, say_problem};
use super::{run, show};

/// Name of the program of [`LabProgram::SoftAes`], beside `dwell`.
const SOFT_AES_PROGRAM: &str = "dwell-node-soft-aes";

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each case of a replay is a plan, which is run, stored and judged like any other run; `dwell show` and \
`dwell report` show it again. The verdict on a claim is pass, fail, cannot-tell or not-run. \
docs/founding-documents.md explains the documents and what dwell does about each of their lines.\n\
^C ends the case; verdicts of earlier cases are printed, and `dwell run PLAN --resume RUN` continues its run.\n\
Exit codes: 0 a case was run, whatever the verdicts; 1 runtime failure; 2 usage error; 4 not \
supported or not permitted here; 130 interrupted.")]
pub(crate) struct Args {
    /// Name of the replay (`dwell replay --list`)
    #[arg(required_unless_present = "list")]
    name: Option<String>,

    /// List the replays with their cost
    #[arg(long, conflicts_with_all = ["name", "short", "case", "set", "on"])]
    list: bool,

    /// With --list: print only the names
    #[arg(long, requires = "list")]
    names: bool,

    /// Run the short form: fewer levels of each parameter, minutes instead of hours
    #[arg(long)]
    short: bool,

    /// Run only this case; may be repeated [default: all]
    #[arg(long, value_name = "CASE")]
    case: Vec<String>,

    /// Set a field of each plan, such as trials.repetitions=3; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,

    /// Measure on devices instead of in a lab, such as n1=pi4,n2=pi3: a device for each node of the
    /// plan's lab
    #[arg(long, value_name = "NODE=DEVICE", value_delimiter = ',')]
    on: Vec<String>,

    /// Write a report of each case into this directory [default: the data directory]
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print the verdicts as one JSON object (dwell.replay/1)
    #[arg(long)]
    json: bool,

    /// Print no progress, only the verdicts
    #[arg(short = 'q', long)]
    quiet: bool,

    #[command(flatten)]
    pub(super) data: DataArgs,
}

/// A case with its verdicts.
struct JudgedCase {
    case: &'static ReplayCase,
    /// The run, or why the case was not run.
    outcome: Result<JudgedRun, NotRun>,
}

impl JudgedCase {
    /// The claims; those of a case that was not run have the verdict not-run.
    fn claims(&self, short: bool) -> Result<Vec<Claim>, Failure> {
        let reason = match &self.outcome {
            Ok(run) => return Ok(run.claims.clone()),
            Err(not_run) => &not_run.reason,
        };
        let expansion = expanded(self.case.plan(short).text)?;
        let document = expansion.plan().claims.as_deref().unwrap_or_default();
        Ok(dwell_documents::claims_not_run(document, reason))
    }
}

/// Why a case was not run.
struct NotRun {
    exit: Exit,
    reason: String,
}

impl NotRun {
    fn unsupported(reason: String) -> Self {
        Self { exit: Exit::Unsupported, reason }
    }

    fn is_interruption(&self) -> bool {
        self.exit == Exit::Interrupted
    }
}

struct JudgedRun {
    run: String,
    claims: Vec<Claim>,
    report: PathBuf,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    let Some(name) = &args.name else {
        return if args.names { list_names() } else { list(args.json) };
    };
    let replay = Replay::find(name).ok_or_else(|| {
        let known: Vec<&str> = REPLAYS.iter().map(|replay| replay.name).collect();
        Failure::usage(format!("no replay is called '{name}'; known: {}", known.join(", ")))
    })?;
    let mut judged = Vec::new();
    let mut failure = None;
    for case in cases(replay, &args.case)? {
        match run_case(args, case) {
            Ok(outcome) => {
                let is_interrupted = outcome.as_ref().is_err_and(NotRun::is_interruption);
                judged.push(JudgedCase { case, outcome });
                if is_interrupted {
                    break;
                }
            }
            // What was judged before is printed.
            Err(failed) => {
                failure = Some(failed);
                break;
            }
        }
    }
    if !judged.is_empty() {
        if args.json {
            super::print(&format!("{:#}", object(args, replay, &judged)?))?;
        } else {
            print(&mut terminal::stdout(), args, replay, &judged)?;
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => Ok(exit(&judged)),
    }
}

/// Exit code: that of an interruption, else of any measured case, else of the first.
fn exit(judged: &[JudgedCase]) -> Exit {
    let not_run = |case: &JudgedCase| case.outcome.as_ref().err().map(|not_run| not_run.exit);
    if judged.iter().any(|case| not_run(case) == Some(Exit::Interrupted)) {
        return Exit::Interrupted;
    }
    let all: Option<Vec<Exit>> = judged.iter().map(not_run).collect();
    all.and_then(|exits| exits.first().copied()).unwrap_or(Exit::Measured)
}

/// Returns the wanted cases of a replay.
fn cases(replay: &'static Replay, wanted: &[String]) -> Result<Vec<&'static ReplayCase>, Failure> {
    for name in wanted {
        if !replay.cases.iter().any(|case| case.name == name) {
            let known: Vec<&str> = replay.cases.iter().map(|case| case.name).collect();
            return Err(Failure::usage(format!(
                "invalid value {name} for --case: {} has {}",
                replay.name,
                known.join(", ")
            )));
        }
    }
    let is_wanted =
        |case: &&ReplayCase| wanted.is_empty() || wanted.iter().any(|name| name == case.name);
    Ok(replay.cases.iter().filter(is_wanted).collect())
}

/// Runs the plan of a case and judges it.
fn run_case(args: &Args, case: &'static ReplayCase) -> Result<Result<JudgedRun, NotRun>, Failure> {
    let plan = case.plan(args.short);
    let lab_program = match lab_program(case.program) {
        Ok(program) => program,
        Err(reason) => {
            say(&format!("dwell: {}: {reason}", case.name));
            return Ok(Err(NotRun::unsupported(reason)));
        }
    };
    let text = match (args.on.is_empty(), &lab_program) {
        (true, _) => plan.text.to_owned(),
        (false, Some(_)) => {
            let reason = "devices have programs of their own".to_owned();
            return Ok(Err(NotRun::unsupported(reason)));
        }
        (false, None) => on_devices::rewritten(plan.text).map_err(Failure::usage)?,
    };
    if !args.quiet {
        say(&format!("{}: {} ({})", case.name, case.what, plan.file));
    }
    let mut run_args = run::Args::of(plan.file, args.data.clone());
    run_args.set.clone_from(&args.set);
    run_args.on.clone_from(&args.on);
    run_args.lab_program = lab_program;
    run_args.quiet = args.quiet;
    let (exit, run) = run::run_text(&run_args, &text)?;
    let Some(run) = run.filter(|_| exit != Exit::Interrupted) else {
        return Ok(Err(NotRun { exit, reason: "interrupted".to_owned() }));
    };
    let store = args.data.open_to_read()?;
    let row = find(&store, &run)?;
    // A rule of the plan may end it early; what was measured is judged.
    if row.trials_finished == 0 {
        return Ok(Err(NotRun { exit, reason: "no trial was measured".to_owned() }));
    }
    let data = judged_data(&store, &row, true, &say_problem)?;
    let folder = args.output.as_deref().unwrap_or(store.dir());
    let report = folder.join(format!("{run}.html"));
    std::fs::write(&report, dwell_report::page(&data))
        .with_context(|| format!("cannot write {}", report.display()))?;
    let claims = data.claims.map_or_else(Vec::new, |judged| judged.claims);
    Ok(Ok(JudgedRun { run, claims, report }))
}

/// Returns the program of a lab's nodes, `None` for this one; the reason if it was not built.
fn lab_program(program: LabProgram) -> Result<Option<PathBuf>, String> {
    match program {
        LabProgram::Own => Ok(None),
        LabProgram::SoftAes => {
            let own = std::env::current_exe().map_err(|error| error.to_string())?;
            let path = own.with_file_name(SOFT_AES_PROGRAM);
            if path.exists() {
                return Ok(Some(path));
            }
            Err(format!("{} does not exist; `make soft-aes` builds it", path.display()))
        }
    }
}

fn list_names() -> Result<Exit, Failure> {
    let names: Vec<&str> = REPLAYS.iter().map(|replay| replay.name).collect();
    super::print(&names.join("\n"))?;
    Ok(Exit::Measured)
}

fn list(as_json: bool) -> Result<Exit, Failure> {
    if as_json {
        let all: Vec<Value> = REPLAYS.iter().map(described).collect();
        super::print(&format!("{:#}", json!({ "schema": "dwell.replays/1", "replays": all })))?;
        return Ok(Exit::Measured);
    }
    let mut rows = Vec::new();
    for replay in REPLAYS {
        for case in replay.cases {
            let [short, full] = [case.short, case.full].map(|plan| amounts::time(plan.time));
            rows.push(vec![
                replay.name.to_owned(),
                case.name.to_owned(),
                short,
                full,
                case.needs.unwrap_or("-").to_owned(),
                format!("{}: {}", replay.cite, case.what),
            ]);
        }
    }
    let heads = ["name", "case", "--short", "full", "needs", "document and case"];
    let table = Table { columns: heads.map(str::to_owned).to_vec(), rows };
    show::print_table(&mut terminal::stdout(), &table)?;
    Ok(Exit::Measured)
}

/// Expands the plan of a case.
fn expanded(text: &str) -> Result<Expansion, Failure> {
    let wrong = |error| Failure::usage(format!("{error}"));
    expand(&Source::parse(text).map_err(wrong)?, 1).map_err(wrong)
}

fn described(replay: &Replay) -> Value {
    let plan = |plan: ReplayPlan| json!({ "plan": plan.file, "time_ns": plan.time.0 });
    let case = |case: &ReplayCase| {
        json!({
            "case": case.name,
            "what": case.what,
            "short": plan(case.short),
            "full": plan(case.full),
            "needs": case.needs,
        })
    };
    let cases: Vec<Value> = replay.cases.iter().map(case).collect();
    json!({ "replay": replay.name, "document": replay.cite, "title": replay.title, "cases": cases })
}

fn object(args: &Args, replay: &Replay, judged: &[JudgedCase]) -> Result<Value, Failure> {
    let case = |one: &JudgedCase| -> Result<Value, Failure> {
        let run = one.outcome.as_ref();
        Ok(json!({
            "case": one.case.name, "what": one.case.what, "plan": one.case.plan(args.short).file,
            "run": run.ok().map(|run| &run.run),
            "report": run.ok().map(|run| &run.report),
            "claims": one.claims(args.short)?,
            "reason": run.err().map(|not_run| &not_run.reason),
        }))
    };
    Ok(json!({
        "schema": "dwell.replay/1",
        "replay": replay.name,
        "document": replay.cite,
        "form": if args.short { "short" } else { "full" },
        "cases": judged.iter().map(case).collect::<Result<Vec<_>, _>>()?,
        "lines": lines_of(replay.line)
            .map(|line| json!({
                "id": line.id, "what": line.what, "status": line.status.name(), "how": line.how,
            }))
            .collect::<Vec<_>>(),
    }))
}

fn print(
    out: &mut impl Write,
    args: &Args,
    replay: &Replay,
    judged: &[JudgedCase],
) -> Result<(), Failure> {
    writeln!(out, "{} ({})", replay.title, replay.cite)?;
    for one in judged {
        writeln!(out, "\n{}: {}", one.case.name, one.case.what)?;
        let claims = one.claims(args.short)?;
        let run = match &one.outcome {
            Ok(run) => run,
            Err(not_run) => {
                let ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
                writeln!(out, "not run: {}", not_run.reason)?;
                writeln!(out, "not judged: {}", ids.join(", "))?;
                continue;
            }
        };
        writeln!(out, "run {}, {}", run.run, counts(&claims))?;
        for claim in &claims {
            let [found, ..] = claim.numbers();
            let against = claim.against();
            let (id, verdict) = (&claim.id, claim.verdict.words());
            writeln!(out, "{id} {verdict}: here {found}, {against}. {}", claim.text())?;
        }
        writeln!(out, "report: {}", run.report.display())?;
    }
    let rows = lines_of(replay.line)
        .map(|line| [line.id, line.status.name(), line.what, line.how].map(str::to_owned).to_vec());
    let heads = ["line", "in dwell", "document", "how"].map(str::to_owned).to_vec();
    Ok(show::print_table(out, &Table { columns: heads, rows: rows.collect() })?)
}

/// Number of claims by verdict.
fn counts(claims: &[Claim]) -> String {
    let verdicts =
        [ClaimVerdict::Pass, ClaimVerdict::Fail, ClaimVerdict::CannotTell, ClaimVerdict::NotRun];
    let parts = verdicts.map(|verdict| {
        let n = claims.iter().filter(|claim| claim.verdict == verdict).count();
        format!("{n} {}", verdict.words())
    });
    format!("{} claims: {}", claims.len(), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use dwell_plan::Estimate;
    use dwell_protocol::NodePreset;

    use super::*;

    #[test]
    fn every_plan_of_a_replay_is_valid_and_has_claims() {
        for plan in
            REPLAYS.iter().flat_map(|replay| replay.cases).flat_map(|it| [it.full, it.short])
        {
            let expansion = expand(&Source::parse(plan.text).unwrap(), 1);
            let expansion = expansion.unwrap_or_else(|error| panic!("{}: {error}", plan.file));
            let claims = expansion.plan().claims.as_deref();
            assert!(claims.and_then(dwell_documents::find).is_some(), "{}: {claims:?}", plan.file);
        }
    }

    #[test]
    fn stated_times_agree_with_the_estimates_of_plans() {
        for case in REPLAYS.iter().flat_map(|replay| replay.cases) {
            assert!(case.full.time > case.short.time, "{}", case.short.file);
            for plan in [case.full, case.short] {
                let expansion = expanded(plan.text).unwrap();
                let least = Estimate::of_all(&expansion).unwrap();
                let [stated, estimated] = [plan.time, least.time].map(|time| time.0 as f64);
                assert!(stated > 0.9 * estimated, "{}: {stated} {estimated}", plan.file);
                if least.at_least {
                    // 50 to 300 us per round trip.
                    let each = stated / least.probes.unwrap() as f64;
                    assert!((50e3..300e3).contains(&each), "{}: {each}", plan.file);
                } else if !least.at_most {
                    assert!(stated < 2.0 * estimated, "{}: {stated} {estimated}", plan.file);
                }
                // The simulated Arduino is so slow that its trials last as long as they may.
                let slow = (0..expansion.cells().len() as u32).filter_map(|cell| {
                    let cell = expansion.plan_of(cell).unwrap();
                    let is_slow = cell.node_sim.as_ref()?.like != NodePreset::Clean;
                    let time = cell.measurement.ping()?.parameters.duration?;
                    is_slow.then_some(time.0 * i64::from(cell.trials.repetitions))
                });
                let slow: i64 = slow.sum();
                assert!(plan.time.0 > slow, "{}: {slow}", plan.file);
            }
        }
    }

    #[test]
    fn every_plan_of_a_replay_can_run_on_devices() {
        for case in REPLAYS.iter().flat_map(|replay| replay.cases) {
            if case.program == LabProgram::Own {
                let text = on_devices::rewritten(case.short.text).unwrap();
                let expansion = expand(&Source::parse(&text).unwrap(), 1);
                expansion.unwrap_or_else(|error| panic!("{}: {error}", case.short.file));
            }
        }
    }
}
