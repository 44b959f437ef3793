//! The events file of an experiment: what `dwell run --events` wrote (docs/formats.md), and the
//! state that follows from it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Maximum number of bytes that are read at once.
const MAX_READ_LEN: u64 = 1 << 20;

/// Maximum length of an event; longer lines are ignored.
const MAX_EVENT_LEN: usize = 1 << 20;

/// Number of bytes at each end of a file that are read for a list: the run begins in the first ones, and
/// its end is the last event.
const ENDS_LEN: u64 = 4_096;

/// Number of messages that are kept for a reader that comes later.
const MAX_MESSAGES: usize = 100;

/// Number of ended trials that are kept for a reader that comes later.
const MAX_TRIALS: usize = 200;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Event {
    /// Time, RFC 3339.
    pub(crate) at: String,
    /// What happened.
    #[serde(flatten)]
    pub(crate) kind: EventKind,
}

/// Kinds of events, with the fields of docs/formats.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum EventKind {
    /// The run waits, for this reason.
    Waiting {
        /// The reason.
        #[serde(rename = "for")]
        reason: String,
    },
    /// The run was created or is resumed.
    Run {
        /// Its name.
        run: String,
        /// Name of the plan.
        plan: String,
        /// Number of trials.
        trials: u32,
        /// Number of trials that had ended before.
        done: u32,
        /// Seed of the order of trials.
        seed: u64,
    },
    /// A trial starts.
    Trial {
        /// Its number.
        trial: u32,
        /// Number of trials that have ended.
        done: u32,
        /// Number of trials.
        all: u32,
        /// Value by axis.
        parameters: BTreeMap<String, String>,
    },
    /// Figures of the current trial so far.
    Progress(Progress),
    /// A trial ended.
    TrialEnd(EndedTrial),
    /// A message for the user.
    Message {
        /// Its text.
        text: String,
    },
    /// The run ended.
    End {
        /// `finished`, `stopped`, `interrupted` or `failed`.
        state: String,
        /// Why.
        reason: Option<String>,
    },
    /// A kind of a newer dwell.
    #[serde(other)]
    Unknown,
}

/// Figures of a trial so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Progress {
    /// Number of the trial.
    pub(crate) trial: u32,
    /// Probes sent.
    pub(crate) sent: Option<u64>,
    /// Probes lost.
    pub(crate) lost: Option<u64>,
    /// Median of the round-trip delay.
    pub(crate) p50_ns: Option<i64>,
    /// 99th percentile of the round-trip delay.
    pub(crate) p99_ns: Option<i64>,
}

/// A trial that ended, with its figures: exact if it finished, otherwise those of its last progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct EndedTrial {
    /// Number of the trial.
    pub(crate) trial: u32,
    /// `finished`, `failed` or `not_run`.
    pub(crate) state: String,
    /// Why it failed or was not run.
    pub(crate) reason: Option<String>,
    /// Probes sent.
    pub(crate) sent: Option<u64>,
    /// Probes lost.
    pub(crate) lost: Option<u64>,
    /// Median of the round-trip delay.
    pub(crate) p50_ns: Option<i64>,
    /// 99th percentile of the round-trip delay.
    pub(crate) p99_ns: Option<i64>,
    /// Value by axis.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) parameters: BTreeMap<String, String>,
}

/// The current trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct CurrentTrial {
    /// Its number.
    pub(crate) trial: u32,
    /// Value by axis.
    pub(crate) parameters: BTreeMap<String, String>,
    /// Its figures so far.
    pub(crate) progress: Option<Progress>,
}

/// A message with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct Message {
    /// Time, RFC 3339.
    pub(crate) at: String,
    /// Its text.
    pub(crate) text: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// `finished`, `stopped`, `interrupted` or `failed`.
    pub(crate) state: String,
    /// Why.
    pub(crate) reason: Option<String>,
    /// Offset of the event in the file.
    pub(crate) offset: u64,
}

/// What all events of a file say together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Name of the run; `None` until it was created.
    pub(crate) run: Option<String>,
    /// Seed of the order of trials.
    pub(crate) seed: Option<u64>,
    /// Number of trials that have ended.
    pub(crate) done: u32,
    /// Number of trials.
    pub(crate) all: u32,
    /// What the run waits for; `None` if it does not.
    pub(crate) waiting: Option<String>,
    /// Offset of the last `run` event.
    pub(crate) began: Option<u64>,
    /// The last end.
    pub(crate) end: Option<End>,
    /// The current trial.
    pub(crate) current: Option<CurrentTrial>,
    /// The last trials that ended, in order.
    pub(crate) ended: VecDeque<EndedTrial>,
    /// The last messages, in order.
    pub(crate) messages: VecDeque<Message>,
}

impl Summary {
    /// Returns what the first and last events of a file say. Events between them are missing, and so is
    /// everything if there is no file.
    ///
    /// # Errors
    /// The file exists, but cannot be read.
    pub(super) fn of_ends(path: &Path) -> io::Result<Self> {
        let mut summary = Self::default();
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(summary),
            file => file?,
        };
        let length = file.metadata()?.len();
        let later = length.saturating_sub(ENDS_LEN).max(ENDS_LEN);
        for (start, end) in [(0, ENDS_LEN.min(length)), (later.min(length), length)] {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(start))?;
            file.by_ref().take(end - start).read_to_end(&mut bytes)?;
            let mut offset = start;
            // The ends of lines that are cut are no events.
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                offset += line.len() as u64;
                if let Ok(event) = serde_json::from_slice(line) {
                    summary.add(offset, &event);
                }
            }
        }
        Ok(summary)
    }

    /// Adds an event at this offset.
    pub(crate) fn add(&mut self, offset: u64, event: &Event) {
        match &event.kind {
            EventKind::Waiting { reason } => self.waiting = Some(reason.clone()),
            EventKind::Run { run, trials, done, seed, .. } => {
                self.run = Some(run.clone());
                self.seed = Some(*seed);
                (self.done, self.all) = (*done, *trials);
                self.waiting = None;
                self.began = Some(offset);
                self.current = None;
            }
            EventKind::Trial { trial, done, all, parameters } => {
                (self.done, self.all) = (*done, *all);
                let parameters = parameters.clone();
                self.current = Some(CurrentTrial { trial: *trial, parameters, progress: None });
            }
            EventKind::Progress(progress) => {
                let current = self.current.as_mut().filter(|now| now.trial == progress.trial);
                if let Some(current) = current {
                    current.progress = Some(progress.clone());
                }
            }
            EventKind::TrialEnd(ended) => {
                self.done = self.done.saturating_add(1).min(self.all.max(1));
                let current = self.current.take().filter(|current| current.trial == ended.trial);
                let parameters = current.map(|current| current.parameters).unwrap_or_default();
                push_bounded(
                    &mut self.ended,
                    EndedTrial { parameters, ..ended.clone() },
                    MAX_TRIALS,
                );
            }
            EventKind::Message { text } => {
                let message = Message { at: event.at.clone(), text: text.clone() };
                push_bounded(&mut self.messages, message, MAX_MESSAGES);
            }
            EventKind::End { state, reason } => {
                let (state, reason) = (state.clone(), reason.clone());
                self.end = Some(End { state, reason, offset });
                self.waiting = None;
                self.current = None;
            }
            EventKind::Unknown => {}
        }
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    if queue.len() == max {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// An event with the offset of the byte after it, from which a reader continues.
pub(crate) type OffsetEvent = (u64, Event);

/// Reads a growing file of events.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    /// Offset of the first byte that is not part of a line that was returned.
    offset: u64,
    /// Device and inode.
    file: Option<(u64, u64)>,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct NewEvents {
    /// The events.
    pub(crate) events: Vec<OffsetEvent>,
    /// Whether the file was replaced or cut, so that its events begin again.
    pub(crate) is_reset: bool,
    /// Whether there is more to read at once.
    pub(crate) has_more: bool,
}

impl Tail {
    pub(crate) fn new(path: &Path, offset: u64) -> Self {
        Self { path: path.to_owned(), offset, file: None }
    }

    /// States where the file is now; moving it changes nothing.
    pub(crate) fn set_path(&mut self, path: &Path) {
        if self.path != path {
            path.clone_into(&mut self.path);
        }
    }

    /// Offset of the first byte that was not read.
    pub(crate) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the events that were appended since the last call. Lines that are not valid events
    /// are skipped; an incomplete last line is read later.
    ///
    /// # Errors
    /// The file exists, but cannot be read.
    pub(crate) fn read(&mut self) -> io::Result<NewEvents> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_reset = self.file.take().is_some();
                if is_reset {
                    self.offset = 0;
                }
                return Ok(NewEvents { is_reset, ..NewEvents::default() });
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let id = (metadata.dev(), metadata.ino());
        let is_other = self.file.is_some_and(|known| known != id) || metadata.len() < self.offset;
        self.file = Some(id);
        if is_other {
            self.offset = 0;
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.offset))?;
        file.take(MAX_READ_LEN).read_to_end(&mut bytes)?;
        let has_more = bytes.len() as u64 == MAX_READ_LEN;
        let mut events = Vec::new();
        let mut start = 0;
        while let Some(length) = bytes[start..].iter().position(|byte| *byte == b'\n') {
            let line = &bytes[start..start + length];
            start += length + 1;
            if let Ok(event) = serde_json::from_slice(line) {
                events.push((self.offset + start as u64, event));
            }
        }
        // A line that fills the whole buffer is no event.
        if start == 0 && bytes.len() >= MAX_EVENT_LEN {
            start = bytes.len();
        }
        self.offset += start as u64;
        Ok(NewEvents { events, is_reset: is_other, has_more })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;

    const RUN: &str =
        r#"{"at":"t","event":"run","run":"r","plan":"p","trials":2,"done":0,"seed":3}"#;
    const TRIAL: &str =
        r#"{"at":"t","event":"trial","trial":1,"done":0,"all":2,"parameters":{"size":"64B"}}"#;
    const PROGRESS: &str =
        r#"{"at":"t","event":"progress","trial":1,"sent":5,"lost":0,"p50_ns":7,"p99_ns":null}"#;
    const ENDED: &str = r#"{"at":"t","event":"trial_end","trial":1,"state":"finished","reason":null,"sent":9,"lost":0,"p50_ns":7,"p99_ns":null}"#;
    const END: &str = r#"{"at":"t","event":"end","state":"finished","reason":null}"#;

    #[test]
    fn tail_returns_whole_lines_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut tail = Tail::new(&path, 0);
        assert!(tail.read().unwrap().events.is_empty());
        fs::write(&path, format!("{RUN}\n{{\"torn\nnoise\n{}", &TRIAL[..20])).unwrap();
        let new = tail.read().unwrap();
        assert_eq!(new.events.len(), 1);
        assert_eq!(new.events[0].0, RUN.len() as u64 + 1);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "{}\n{{\"at\":\"t\",\"event\":\"later\",\"x\":1}}\n", &TRIAL[20..]).unwrap();
        let kinds: Vec<_> =
            tail.read().unwrap().events.into_iter().map(|(_, it)| it.kind).collect();
        assert!(matches!(&kinds[..], [EventKind::Trial { .. }, EventKind::Unknown]), "{kinds:?}");
        assert!(tail.read().unwrap().events.is_empty());
        // Another file of this name is read from its start.
        fs::remove_file(&path).unwrap();
        assert!(tail.read().unwrap().is_reset);
        fs::write(&path, format!("{END}\n")).unwrap();
        assert_eq!(tail.read().unwrap().events.len(), 1);
    }

    #[test]
    fn endless_line_is_skipped_in_bounded_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        fs::write(&path, format!("{}\n{RUN}\n", "x".repeat(3 << 20))).unwrap();
        let mut tail = Tail::new(&path, 0);
        let mut events = Vec::new();
        for _ in 0..5 {
            events.extend(tail.read().unwrap().events);
        }
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn ends_of_a_long_file_have_the_run_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        assert_eq!(Summary::of_ends(&path).unwrap().run, None);
        let progress = format!("{PROGRESS}\n").repeat(1_000);
        for between in ["", &progress[..PROGRESS.len() + 1], &progress] {
            let text = format!("{RUN}\n{TRIAL}\n{between}{ENDED}\n{END}\n");
            fs::write(&path, &text).unwrap();
            let summary = Summary::of_ends(&path).unwrap();
            assert_eq!((summary.run.as_deref(), summary.all), (Some("r"), 2));
            let end = summary.end.unwrap();
            assert_eq!((end.state.as_str(), end.offset), ("finished", text.len() as u64));
        }
    }

    #[test]
    fn summary_follows_the_run() {
        let mut summary = Summary::default();
        let add = |summary: &mut Summary, text: &str| {
            summary.add(7, &serde_json::from_str(text).unwrap());
        };
        add(&mut summary, r#"{"at":"t","event":"waiting","for":"another run"}"#);
        assert_eq!(summary.waiting.as_deref(), Some("another run"));
        for text in [RUN, TRIAL, PROGRESS] {
            add(&mut summary, text);
        }
        assert_eq!((summary.run.as_deref(), summary.waiting.as_deref()), (Some("r"), None));
        assert_eq!(summary.current.as_ref().unwrap().progress.as_ref().unwrap().sent, Some(5));
        add(&mut summary, ENDED);
        assert_eq!((summary.done, summary.all, summary.current.is_none()), (1, 2, true));
        assert_eq!(summary.ended[0].parameters["size"], "64B");
        add(&mut summary, END);
        assert_eq!(summary.end.unwrap().state, "finished");
    }
}
