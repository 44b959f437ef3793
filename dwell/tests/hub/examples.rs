//! The examples of docs/query-examples.md work as typed, on a data directory with made-up results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dwell_record::segment::{Header, SegmentWriter};
use dwell_sample::{RxStamps, Sample, State, TimestampSource, TxStamps};
use dwell_store::FleetSamples;
use dwell_units::{Instant, Nanos, Pairing};

use crate::fixture::{DWELL, Sandbox, repository};
use crate::queries::sandbox_of;

/// A time of a day in 2026.
const START_NS: i64 = 1_795_766_400_000_000_000;

/// Stores 200 samples, a tenth of them lost, with round trips of 1 ms and more.
fn store_samples(data: &Path) {
    let pairing = Pairing {
        real: Instant::from_nanos(START_NS),
        mono: Instant::from_nanos(7),
        width: Nanos(30),
    };
    let header = Header::of_ping("stamp://192.0.2.1".to_owned());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    for id in 0..200 {
        let at = Nanos::from_secs(id as i64);
        let app = pairing.real + at;
        let is_lost = id % 10 == 3;
        let reply = app + Nanos(1_000_000 + id as i64 * 1_000);
        let sample = Sample {
            id,
            state: if is_lost { State::Lost } else { State::Received },
            reordered: false,
            intended: pairing.mono + at,
            tx: TxStamps { app, sched: None, tcx: None, kernel: None, hw: None },
            rx: (!is_lost).then_some(RxStamps { hw: None, driver: None, kernel: None, app: reply }),
            remote: None,
        };
        writer.push(&sample, Some(&pairing), TimestampSource::User);
    }
    let about = FleetSamples {
        sender: "berlin".to_owned(),
        reflector: "paris".to_owned(),
        protocol: "stamp".to_owned(),
        entry: "mesh+paris".to_owned(),
        incarnation: "00000000000000aa".to_owned(),
        first_sequence: 1,
        sequences: "1".to_owned(),
        from_ns: START_NS,
        to_ns: START_NS + 199_000_000_000,
        samples: 200,
    };
    about.store(data, &[&writer.finish(0).unwrap()]).unwrap();
}

/// The Python environment with DuckDB and pandas; `None` if it cannot be made.
fn python() -> Option<PathBuf> {
    let made = Command::new(repository("setup/api-venv")).stdin(Stdio::null()).output().ok()?;
    let path = String::from_utf8(made.stdout).ok()?;
    made.status.success().then(|| Path::new(path.trim()).join("bin/python"))
}

/// Contents of all blocks marked as an example, with their language.
fn examples(document: &str) -> Vec<(&str, &str)> {
    let blocks = document.split("\n```").skip(1).step_by(2);
    let examples = blocks.filter_map(|block| {
        let (head, text) = block.split_once('\n')?;
        Some((head.strip_suffix(" example")?, text))
    });
    examples.collect()
}

fn run(sandbox: &Sandbox, program: &Path, option: &str, text: &str) -> String {
    let binaries = Path::new(DWELL).parent().unwrap().to_owned();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries).chain(std::env::split_paths(&paths)));
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120"])
        .arg(program)
        .args([option, text])
        .current_dir(sandbox.path("."))
        .env("PATH", path.unwrap())
        .env("DWELL_DATA", sandbox.data())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{text}\n{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn query_examples_work_as_typed() {
    const TEST: &str = "query_examples_work_as_typed";
    let Some(python) = python() else {
        println!("SKIP {TEST}: setup/api-venv cannot install DuckDB and pandas");
        return;
    };
    let sandbox = sandbox_of("berlin", "paris");
    store_samples(&sandbox.data());
    // Samples of devices only can be requested.
    sandbox.dwell(&["device", "add", "berlin", "root@192.0.2.7", "--address", "192.0.2.7"]);
    let document = fs::read_to_string(repository("docs/query-examples.md")).unwrap();
    let data = sandbox.data().display().to_string();
    let printed = examples(&document).into_iter().map(|(language, example)| {
        let text = example.replace("dwell-data", &data);
        match language {
            "sh" => run(&sandbox, Path::new("sh"), "-ec", &text),
            _ => run(&sandbox, &python, "-c", &text),
        }
    });
    let printed: Vec<String> = printed.collect();
    // One row of 290 delays, 9 of 300 probes lost; 200 samples, 20 of them lost.
    for (example, expected) in
        [(1, "290"), (2, "290"), (3, "mesh"), (3, "0.03"), (5, "mesh+paris"), (6, "1.800000e+02")]
    {
        assert!(printed[example].contains(expected), "{example}: {}", printed[example]);
    }
    assert_eq!(printed.len(), 7);
}
