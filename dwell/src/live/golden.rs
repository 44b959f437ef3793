//! Compares the views at several sizes with committed text. `BLESS=1` writes it instead.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use dwell_protocol::Progress;
use dwell_record::{Kind, Summary};
use dwell_runner::TrialEnd;
use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_stats::{Metric, RoundTrip};
use dwell_units::{Instant, Nanos, Pairing};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;

use super::ping::PingView;
use super::{RunView, Theme, View};

const UNICODE: Theme = Theme { has_unicode: true, has_color: true };
const ASCII: Theme = Theme { has_unicode: false, has_color: false };

/// Sizes of terminals, from roomy to absurd.
const SIZES: [(u16, u16, Theme); 9] = [
    (80, 24, UNICODE),
    (80, 24, ASCII),
    (140, 50, UNICODE),
    (60, 16, UNICODE),
    (40, 11, UNICODE),
    (40, 8, UNICODE),
    (24, 24, UNICODE),
    (12, 3, UNICODE),
    (1, 1, UNICODE),
];

/// A view as drawn by ratatui on a terminal of this size, a quoted row per line.
fn drawn(view: &impl View, at: Nanos, theme: Theme, size: Size) -> String {
    let available = Size::new(size.width, size.height);
    let backend = TestBackend::new(size.width, view.height(available));
    let mut terminal = Terminal::new(backend).unwrap();
    terminal.draw(|frame| view.render(at, theme, frame.area(), frame.buffer_mut())).unwrap();
    terminal.backend().to_string()
}

/// The name of a state, and a function that draws it.
type DrawnState<'a> = (&'a str, &'a dyn Fn(Theme, Size) -> String);

fn assert_golden(name: &str, states: &[DrawnState<'_>]) {
    let mut text = String::new();
    for (state, draw) in states {
        for (width, height, theme) in SIZES {
            let charset = if theme.has_unicode { "" } else { ", ASCII" };
            let drawn = draw(theme, Size::new(width, height));
            let _ = writeln!(text, "{state}, {width}x{height}{charset}\n{drawn}");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/live/golden").join(name);
    if env::var_os("BLESS").is_some() {
        fs::write(path, text).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(text == committed, "{} differs; BLESS=1 writes it:\n{text}", path.display());
}

/// A probe sent every 20 ms with a sawtooth of delays, a spike every second and lost and late probes.
fn sample(id: u64) -> Sample {
    let (intended, sent) = (id as i64 * 20_000_000, id as i64 * 20_000_000 + 5_000);
    let delay = match id % 50 {
        7 => 1_402_100,
        n => 60_000 + n as i64 * 500,
    };
    let state = match id {
        200..204 => State::Lost,
        100 | 320 => State::Late,
        _ => State::Received,
    };
    let received =
        RxStamps { hw: None, driver: None, kernel: None, app: Instant::from_nanos(sent + delay) };
    Sample {
        id,
        state,
        reordered: false,
        intended: Instant::from_nanos(intended),
        tx: TxStamps {
            app: Instant::from_nanos(sent),
            sched: None,
            tcx: None,
            kernel: None,
            hw: None,
        },
        rx: (state == State::Received).then_some(received),
        remote: None,
    }
}

fn ping_after(probes: u64, count: Option<u64>, duration: Option<Nanos>) -> PingView {
    let origin = Instant::from_nanos(0);
    let bridge = Pairing { real: Instant::EPOCH, mono: Instant::EPOCH, width: Nanos(28) };
    let mut measured = RoundTrip::new(TimestampSource::User, 0);
    let mut view = PingView::new("stamp://192.0.2.7:862", count, duration);
    for sample in (0..probes).map(sample) {
        if sample.state == State::Late {
            let lost = Sample { state: State::Lost, ..sample };
            measured.record(&lost, Some(&bridge));
            view.record(&lost, origin);
        }
        measured.record(&sample, Some(&bridge));
        view.record(&sample, origin);
    }
    view.packets = measured.packets();
    view.figures = measured.figures(Metric::Rtt);
    view
}

#[test]
fn ping_view_fits_every_size() {
    let started = ping_after(0, None, None);
    let few = ping_after(5, Some(1_000), None);
    let long = ping_after(4_000, None, Some(Nanos::from_secs(120)));
    let mut ended = ping_after(400, Some(400), None);
    ended.ended = Some(Nanos::from_secs(8));
    let at = |seconds: f64| Nanos::from_secs_f64(seconds);
    assert_golden(
        "ping.txt",
        &[
            ("no reply yet", &|theme, size| drawn(&started, at(0.1), theme, size)),
            ("five replies", &|theme, size| drawn(&few, at(0.1), theme, size)),
            ("scrolling", &|theme, size| drawn(&long, at(80.0), theme, size)),
            ("ended", &|theme, size| drawn(&ended, at(9.0), theme, size)),
        ],
    );
}

fn summary(p50: i64) -> Summary {
    let mut measured = RoundTrip::new(TimestampSource::User, 0);
    let bridge = Pairing { real: Instant::EPOCH, mono: Instant::EPOCH, width: Nanos(28) };
    for id in 0..2 {
        let mut sample = sample(id);
        sample.rx = sample.rx.map(|rx| RxStamps { app: sample.tx.app + Nanos(p50), ..rx });
        measured.record(&sample, Some(&bridge));
    }
    let mut summary = Summary::new(Kind::Ping, String::new(), String::new());
    summary.metrics.insert("rtt_ns".into(), measured.figures(Metric::Rtt).into());
    summary
}

#[test]
fn run_view_fits_every_size() {
    let at = |seconds: f64| Nanos::from_secs_f64(seconds);
    let started = RunView::new(40);
    let mut running = RunView::new(40);
    for trial in 0..12 {
        running.start_trial(at(f64::from(trial) * 10.0), trial, 40, "rate 100pps, size 64B");
        match trial {
            4 => running.add_end(&TrialEnd::Failed("no reply".into())),
            5 => running.add_end(&TrialEnd::NotRun("no engine".into())),
            _ => {
                running.add_summary(&summary(60_000 + i64::from(trial) * 8_000));
                running.add_end(&TrialEnd::Finished);
            }
        }
    }
    let mut ended = running.clone();
    ended.set_done(12);
    ended.end(at(125.0));
    running.start_trial(at(120.0), 12, 40, "rate 100pps, size 1400B, topology \u{1b}[2Jstar");
    running.set_end(Some(at(400.0)));
    for n in 0..10_u64 {
        let progress = Progress {
            sent: n * 50,
            lost: n / 6,
            p50_ns: (n > 0).then_some(71_000 + n as i64 * 100),
            p99_ns: (n > 2).then_some(90_000 + n as i64 * 1_000),
        };
        running.add_progress(at(120.0 + n as f64 * 0.5), &progress);
    }
    assert_golden(
        "run.txt",
        &[
            ("not begun", &|theme, size| drawn(&started, at(0.2), theme, size)),
            ("running", &|theme, size| drawn(&running, at(125.0), theme, size)),
            ("ended", &|theme, size| drawn(&ended, at(126.0), theme, size)),
        ],
    );
}
