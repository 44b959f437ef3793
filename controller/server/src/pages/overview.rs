//! `/`: what runs now, the last results, devices that failed, disk and clock.

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use dwell_results::age::ago;
use dwell_results::amounts;
use dwell_results::device::{CLOCK_ERROR, KnownDevice};
use dwell_store::{LastCheck, RunFilter, RunState};
use jiff::Timestamp;
use serde_json::Value;

use super::deletions::Deletion;
use super::ignore_problem;
use super::layout::{Layout, Status, render};
use super::runs::ListedRun;
use crate::app::App;
use crate::data::disk_space;
use crate::error::Error;

/// Number of runs and devices in each list.
const MAX_ROWS: u32 = 5;

/// Part of the disk that should be free.
const MIN_FREE_PART: u64 = 20;

/// Bytes of the disk that should be free.
const MIN_FREE: u64 = 1_000_000_000;

/// Time after which the clock is asked about again.
const CLOCK_INTERVAL: Duration = Duration::from_secs(600);

/// Time for asking this machine about its clock.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn router() -> Router<App> {
    Router::new().route("/", get(page))
}

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    layout: Layout,
    deletions: Vec<Deletion>,
    running: Vec<ListedRun>,
    /// The last runs, with their first finding.
    last: Vec<(ListedRun, String)>,
    failing: Vec<Failing>,
    more_failing: usize,
    devices: usize,
    devices_status: Status,
    disk: Option<(Status, String)>,
    clock: Status,
    device_clocks: Option<Status>,
}

/// A device whose last check failed.
struct Failing {
    name: String,
    reason: String,
    ago: String,
}

/// What the overview says about all devices.
#[derive(Default)]
struct Devices {
    all: usize,
    never_checked: usize,
    /// Number of answers, and how many of them are of a synchronised clock.
    answers: usize,
    synchronised: usize,
    failing: Vec<Failing>,
}

async fn page(State(app): State<App>) -> Result<Response, Error> {
    let reader = app.clone();
    let now = Timestamp::now();
    let read = app.read(move |store| {
        let hidden = reader.hidden_runs();
        let running = RunFilter { state: Some(RunState::Running), ..RunFilter::default() };
        let (running, _) = store.run_page(&running, 0, MAX_ROWS)?;
        let (mut others, _) =
            store.run_page(&RunFilter { hidden, ..RunFilter::default() }, 0, 2 * MAX_ROWS)?;
        others.retain(|run| run.state != RunState::Running);
        others.truncate(MAX_ROWS as usize);
        let deleted = reader.deleted_devices();
        let mut devices = Devices::default();
        let mut checks = store.last_checks(CLOCK_ERROR)?;
        for known in KnownDevice::all(store, &ignore_problem)? {
            if !deleted.hides(&known.row) {
                let last = checks.remove(&known.row.name);
                devices.add(known.row.name, last, now);
            }
        }
        Ok((running, others, devices))
    });
    let (running, others, mut devices) = read.await?.unwrap_or_default();
    let mut last = Vec::new();
    for run in others {
        let lead = match app.run_content(&run.run).await {
            Ok((_, content)) => content.lead.clone(),
            // The page of the run says what is wrong.
            Err(_) => String::new(),
        };
        last.push((ListedRun::from(run), lead));
    }
    let clock = app.clock(running.is_empty());
    let more_failing = devices.failing.len().saturating_sub(MAX_ROWS as usize);
    let (devices_status, device_clocks) = (devices.status(), devices.clocks());
    devices.failing.truncate(MAX_ROWS as usize);
    Ok(render(&Overview {
        layout: Layout::new("Overview", "/"),
        deletions: app.deletions().await?,
        running: running.into_iter().map(ListedRun::from).collect(),
        last,
        more_failing,
        failing: devices.failing,
        devices: devices.all,
        devices_status,
        disk: disk_space(&app.config().data).map(disk),
        clock,
        device_clocks,
    }))
}

/// Describes free and total bytes of a disk.
fn disk((free, all): (u64, u64)) -> (Status, String) {
    let text = format!("{} free", amounts::bytes(free));
    let status = match free < MIN_FREE || free < all / MIN_FREE_PART {
        true => Status::warning(format!("{text}: delete runs, or runs will stop")),
        false => Status::good(text),
    };
    (status, format!("of {}", amounts::bytes(all)))
}

impl Devices {
    fn add(&mut self, name: String, last: Option<LastCheck>, now: Timestamp) {
        self.all += 1;
        match last {
            None => self.never_checked += 1,
            Some(LastCheck { error: None, number: clock_error, .. }) => {
                self.answers += 1;
                self.synchronised += usize::from(clock_error.is_some());
            }
            Some(LastCheck { error: Some(reason), at, .. }) => {
                let reason = reason.lines().next().unwrap_or_default().to_owned();
                self.failing.push(Failing { name, reason, ago: ago(&at, now) });
            }
        }
    }

    fn status(&self) -> Status {
        match (self.failing.len(), self.never_checked) {
            (0, 0) => Status::good(format!("{} answered", self.answers)),
            (0, n) => Status::unknown(format!("{} answered, {n} never checked", self.answers)),
            (n, _) => Status::failed(format!("{n} of {} failed the last check", self.all)),
        }
    }

    fn clocks(&self) -> Option<Status> {
        match (self.answers, self.synchronised) {
            (0, _) => None,
            (all, synchronised) if all == synchronised => {
                Some(Status::good(format!("{all} synchronised")))
            }
            (all, synchronised) => {
                Some(Status::warning(format!("{} of {all} not synchronised", all - synchronised)))
            }
        }
    }
}

/// What this machine said about its clock.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<ClockAnswer>);

#[derive(Debug, Default)]
struct ClockAnswer {
    /// When it was asked.
    asked: Option<Instant>,
    /// `clocks` of `dwell.doctor/1`.
    clocks: Option<Value>,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, ClockAnswer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the last answer is old. If it is, records that the clock is asked now.
    fn begin(&self) -> bool {
        let mut known = self.lock();
        let is_old = known.asked.is_none_or(|at| at.elapsed() >= CLOCK_INTERVAL);
        if is_old {
            known.asked = Some(Instant::now());
        }
        is_old
    }
}

impl App {
    /// Describes the clock of this machine by its last answer. It is asked again only while nothing
    /// is measured, which that would disturb; nothing waits for the answer.
    fn clock(&self, is_idle: bool) -> Status {
        if is_idle && self.pages().clock.begin() {
            let app = self.clone();
            tokio::spawn(async move {
                let arguments = ["doctor", "--json"].map(OsString::from);
                let output = app.command(arguments, DOCTOR_TIMEOUT).await.ok();
                let object = output.and_then(|it| serde_json::from_str::<Value>(&it.stdout).ok());
                app.pages().clock.lock().clocks = object.map(|object| object["clocks"].clone());
            });
        }
        match &self.pages().clock.lock().clocks {
            None => Status::unknown("not known yet"),
            Some(clocks) => match clocks["utc_error_ns"].as_i64() {
                Some(ns) => Status::good(format!("within {:.3} ms of UTC", ns as f64 / 1e6)),
                None => Status::warning("not synchronised to UTC"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_asked_once_per_interval() {
        let clock = Clock::default();
        assert!(clock.begin() && !clock.begin());
    }

    #[test]
    fn nearly_full_disk_is_a_warning() {
        let full = |free, all| {
            disk((free, all)).0 != Status::good(format!("{} free", amounts::bytes(free)))
        };
        assert!(!full(100_000_000_000, 200_000_000_000));
        assert!(full(100_000_000, 1_000_000_000));
        assert!(full(5_000_000_000, 200_000_000_000));
    }

    #[test]
    fn failed_checks_outweigh_missing_ones() {
        let mut devices = Devices { all: 3, answers: 1, never_checked: 1, ..Devices::default() };
        assert_eq!(devices.status(), Status::unknown("1 answered, 1 never checked"));
        assert_eq!(devices.clocks(), Some(Status::warning("1 of 1 not synchronised")));
        let text = String::new;
        devices.failing.push(Failing { name: text(), reason: text(), ago: text() });
        assert_eq!(devices.status(), Status::failed("1 of 3 failed the last check"));
    }
}
