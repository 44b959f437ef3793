//! `--events FILE`: what happens in a run, as JSON lines (`dwell.event/1`, docs/formats.md).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use dwell_protocol::Progress as Probes;
use dwell_record::Summary;
use dwell_runner::{ProgressReporter, TrialEnd};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Minimum interval between `progress` events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Appends events to a file. Once the file is open, an error of it never affects the run.
pub(super) struct Events {
    file: Option<File>,
    /// Whether the last line may be incomplete.
    is_line_open: bool,
    trial: u32,
    /// Figures of the current trial: those of its last progress, or of its summary.
    latest: Figures,
    last_progress: Option<Instant>,
    /// Whether the end of the run is written.
    has_ended: bool,
}

/// Figures of a trial, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    sent: Option<u64>,
    lost: Option<u64>,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
}

impl From<&Probes> for Figures {
    fn from(probes: &Probes) -> Self {
        Self {
            sent: Some(probes.sent),
            lost: Some(probes.lost),
            p50_ns: probes.p50_ns,
            p99_ns: probes.p99_ns,
        }
    }
}

impl From<&Summary> for Figures {
    fn from(summary: &Summary) -> Self {
        let rtt = summary.metrics.get("rtt_ns");
        Self {
            sent: summary.packets.map(|packets| packets.sent),
            lost: summary.packets.map(|packets| packets.lost),
            p50_ns: rtt.and_then(|rtt| rtt.p50),
            p99_ns: rtt.and_then(|rtt| rtt.p99),
        }
    }
}

impl Events {
    /// Opens the file; without a path, events are discarded.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).create(true).open(path);
        let file = path.map(open).transpose()?;
        Ok(Self {
            // A line that an earlier process did not finish is ended first.
            is_line_open: file.is_some(),
            file,
            trial: 0,
            latest: Figures::default(),
            last_progress: None,
            has_ended: false,
        })
    }

    /// The run waits until something else ends.
    pub(super) fn waiting(&mut self, reason: &str) {
        self.write(json!({ "event": "waiting", "for": reason }));
    }

    /// The run was created or is resumed. `done` of its trials have ended.
    pub(super) fn run(&mut self, run: &str, plan: &str, trials: u32, done: u32, seed: u64) {
        self.write(json!({
            "event": "run",
            "run": run,
            "plan": plan,
            "trials": trials,
            "done": done,
            "seed": seed,
        }));
    }

    /// The run ended: `finished`, `stopped` by a rule of the plan, `interrupted` by the user or
    /// `failed`. Later ends are ignored: a result that cannot be printed does not change the run.
    pub(super) fn end(&mut self, state: &str, reason: Option<&str>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.write(json!({ "event": "end", "state": state, "reason": reason }));
    }

    fn write(&mut self, mut event: Value) {
        let Some(file) = &mut self.file else { return };
        event["at"] = json!(format!("{:.3}", Timestamp::now()));
        let start = if self.is_line_open { "\n" } else { "" };
        // One write per line, so that a reader never sees two halves of different lines.
        let written = file.write_all(format!("{start}{event}\n").as_bytes());
        self.is_line_open = written.is_err();
    }
}

impl ProgressReporter for Events {
    fn trial_started(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>) {
        self.trial = trial;
        self.latest = Figures::default();
        self.write(json!({
            "event": "trial",
            "trial": trial,
            "done": done,
            "all": all,
            "parameters": cell,
        }));
    }

    fn progress(&mut self, probes: &Probes) {
        self.latest = probes.into();
        if self.last_progress.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL) {
            return;
        }
        self.last_progress = Some(Instant::now());
        self.write(json!({
            "event": "progress",
            "trial": self.trial,
            "sent": probes.sent,
            "lost": probes.lost,
            "p50_ns": probes.p50_ns,
            "p99_ns": probes.p99_ns,
        }));
    }

    fn measured(&mut self, _: u32, summary: &Summary) {
        self.latest = summary.into();
    }

    fn ended(&mut self, trial: u32, end: &TrialEnd) {
        let (state, reason) = match end {
            TrialEnd::Finished => ("finished", None),
            TrialEnd::Failed(reason) => ("failed", Some(reason)),
            TrialEnd::NotRun(reason) => ("not_run", Some(reason)),
        };
        let latest = std::mem::take(&mut self.latest);
        self.write(json!({
            "event": "trial_end",
            "trial": trial,
            "state": state,
            "reason": reason,
            "sent": latest.sent,
            "lost": latest.lost,
            "p50_ns": latest.p50_ns,
            "p99_ns": latest.p99_ns,
        }));
    }

    fn say(&mut self, text: &str) {
        self.write(json!({ "event": "message", "text": text }));
    }
}

/// Two reporters in one.
pub(super) struct Both<'a>(
    pub(super) &'a mut dyn ProgressReporter,
    pub(super) &'a mut dyn ProgressReporter,
);

impl ProgressReporter for Both<'_> {
    fn trial_started(&mut self, done: u32, all: u32, trial: u32, cell: &BTreeMap<String, String>) {
        self.0.trial_started(done, all, trial, cell);
        self.1.trial_started(done, all, trial, cell);
    }

    fn progress(&mut self, probes: &Probes) {
        self.0.progress(probes);
        self.1.progress(probes);
    }

    fn measured(&mut self, trial: u32, summary: &Summary) {
        self.0.measured(trial, summary);
        self.1.measured(trial, summary);
    }

    fn ended(&mut self, trial: u32, end: &TrialEnd) {
        self.0.ended(trial, end);
        self.1.ended(trial, end);
    }

    fn say(&mut self, text: &str) {
        self.0.say(text);
        self.1.say(text);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dwell_record::{Kind, Packets};

    use super::*;

    const PROBES: Probes = Probes { sent: 9, lost: 1, p50_ns: Some(5), p99_ns: None };

    #[test]
    fn events_are_whole_lines_after_a_torn_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        fs::write(&path, "{\"at\":\"2026").unwrap();
        let mut events = Events::open(Some(&path)).unwrap();
        events.waiting("another run");
        events.trial_started(0, 2, 1, &BTreeMap::new());
        events.progress(&PROBES);
        // Too soon after the first.
        events.progress(&Probes { sent: 10, ..PROBES });
        events.ended(1, &TrialEnd::Failed("no reply".to_owned()));
        events.end("finished", None);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let kinds: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
        assert_eq!(kinds, ["waiting", "trial", "progress", "trial_end", "end"], "{text}");
        assert_eq!((&lines[2]["sent"], &lines[3]["sent"]), (&json!(9), &json!(10)));
        let at = lines[0]["at"].as_str().unwrap();
        assert!(at.len() == 24 && at.parse::<Timestamp>().is_ok(), "{at}");
    }

    #[test]
    fn finished_trial_has_the_figures_of_its_summary() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut events = Events::open(Some(&path)).unwrap();
        let mut summary = Summary::new(Kind::Ping, String::new(), String::new());
        summary.packets = Some(Packets { sent: 12, lost: 2, ..Packets::default() });
        let rtt = dwell_record::Figures { p50: Some(7), p99: Some(8), ..Default::default() };
        summary.metrics.insert("rtt_ns".into(), rtt);
        events.trial_started(0, 2, 1, &BTreeMap::new());
        events.progress(&PROBES);
        events.measured(1, &summary);
        events.ended(1, &TrialEnd::Finished);
        events.trial_started(1, 2, 2, &BTreeMap::new());
        events.ended(2, &TrialEnd::NotRun("no engine".to_owned()));
        events.end("finished", None);
        events.end("failed", Some("cannot print the result"));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let figures =
            |line: &Value| ["sent", "lost", "p50_ns", "p99_ns"].map(|name| line[name].as_i64());
        assert_eq!(figures(&lines[2]), [12, 2, 7, 8].map(Some), "{text}");
        assert_eq!(figures(&lines[4]), [None; 4], "{text}");
        assert_eq!((lines.len(), &lines[5]["state"]), (6, &json!("finished")), "{text}");
    }

    #[test]
    fn full_disk_does_not_end_the_run() {
        let mut events = Events::open(Some(Path::new("/dev/full"))).unwrap();
        events.waiting("space");
        events.end("finished", None);
    }

    #[test]
    fn unwritable_file_is_an_error_at_once() {
        assert!(Events::open(Some(Path::new("/nonexistent/events"))).is_err());
        assert!(Events::open(None).unwrap().file.is_none());
    }
}
