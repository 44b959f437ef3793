//! Tests that need node: the committed runtime equals a rebuild, and the pages work in a browser.
//! Both print SKIP with the reason without npm or chromium.

mod synthetic;
#[path = "synthetic/paced.rs"]
mod trains;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use dwell_report::model::{RunData, RunPlan};
use dwell_report::{comparison_page, findings, page};

/// Result of installing the packages of controller/web.
static PACKAGES: LazyLock<Result<(), String>> = LazyLock::new(|| {
    let output = Command::new(web().join("../../setup/web-packages")).stdin(Stdio::null()).output();
    let output = output.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| line.contains("error") || line.contains("npm"));
    if output.status.success() { Ok(()) } else { Err(last.unwrap_or("npm ci failed").to_owned()) }
});

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../web")
}

#[test]
fn committed_runtime_equals_rebuild() {
    const TEST: &str = "committed_runtime_equals_rebuild";
    if let Err(reason) = &*PACKAGES {
        println!("SKIP {TEST}: {reason}");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rebuilt");
    std::fs::create_dir_all(&folder).unwrap();
    let ran =
        Command::new("node").arg("build.mjs").arg(&folder).current_dir(web()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    for name in ["vega.js", "vega-lite-schema.json"] {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name);
        let rebuilt = folder.join(name);
        let same = std::fs::read(&rebuilt).unwrap() == std::fs::read(&committed).unwrap();
        assert!(same, "{} differs from {}: make web", committed.display(), rebuilt.display());
    }
}

#[test]
fn pages_work_in_a_browser() {
    const TEST: &str = "pages_work_in_a_browser";
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().any(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    });
    if !found {
        println!("SKIP {TEST}: chromium is not installed (make setup)");
        return;
    }
    if let Err(reason) = &*PACKAGES {
        println!("SKIP {TEST}: {reason}");
        return;
    }
    let version = Command::new("node").arg("--version").output().unwrap().stdout;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok());
    if major.is_none_or(|major: u32| major < 20) {
        println!("SKIP {TEST}: node {version} is too old for playwright-core, which needs 20");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-pages");
    write_pages(&folder);
    for (page, figures) in REQUIRED_FIGURES {
        let html = std::fs::read_to_string(folder.join(page)).unwrap();
        for id in figures {
            assert!(html.contains(&format!("data-figure=\"{id}\"")), "{page} lacks {id}");
        }
    }
    let ran = Command::new("node")
        .args(["--test", "--test-reporter=spec", "test/pages.test.mjs"])
        .current_dir(web())
        .env("DWELL_PAGES", &folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    println!("{said}\nscreenshots are in {}", folder.join("screenshots").display());
    assert!(ran.status.success(), "{said}");
}

/// Figures that only some kinds of runs have, by page.
const REQUIRED_FIGURES: [(&str, &[&str]); 3] = [
    ("machines.html", &["host"]),
    ("paces.html", &["largest-rates", "rates-0", "rates-25", "pairs", "gap-errors-0"]),
    (
        "relays.html",
        &[
            "breakdown",
            "waterfall",
            "end-to-end",
            "p95-size",
            "timeline",
            "fit-size-encrypt",
            "jitter-size-encrypt",
        ],
    ),
];

fn write_pages(folder: &Path) {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    let mut loads = synthetic::loads();
    let quick = include_str!("../../../plans/quick.toml");
    loads.plan = Some(RunPlan::read(quick.to_owned(), vec!["ping.count=4000".to_owned()]).into());
    synthetic::add_witness(&mut loads);
    let mut later = loads.clone();
    later.id = "20261122-1".to_owned();
    let mut lost = loads.clone();
    for trial in &mut lost.trials {
        trial.series.clear();
        let packets = trial.summary.as_mut().unwrap().packets.as_mut().unwrap();
        (packets.received, packets.lost) = (0, packets.sent);
    }
    let pages = [
        ("loads.html", page(&loads)),
        ("relays.html", page(&relays())),
        ("machines.html", page(&synthetic::with_machines("n2"))),
        ("paces.html", page(&trains::paces(&[]))),
        ("sweep.html", page(&synthetic::sweep())),
        ("lost.html", page(&lost)),
        ("empty.html", page(&synthetic::run("20261121-3", "nothing", None, Vec::new()))),
        ("comparison.html", comparison_page(&[loads.clone(), later], "rtt_ns", &findings(&loads))),
    ];
    for (name, html) in pages {
        std::fs::write(folder.join(name), html).unwrap();
    }
}

/// A run over all relay modes, with example packets.
fn relays() -> RunData {
    // A single kind of link, to draw fewer figures.
    let mut run = synthetic::relays(synthetic::PI_ZERO).only("topology.link.rate", "none");
    synthetic::add_packets(&mut run);
    let text = include_str!("../../../plans/relay-delay-short.toml");
    run.plan = Some(RunPlan::read(text.to_owned(), Vec::new()).into());
    run
}
