//! Samples written by a command are the samples that are imported.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use dwell_host::HostSample;
use dwell_io::process::{Handle, Signal};
use dwell_record::segment::{FlowEntry, Header, SegmentWriter};
use dwell_sample::{PacketObservation, PacketOutcome, Point, PointStamps};
use dwell_units::Instant;
use serde_json::Value;

use crate::fixture::{Sandbox, object, stderr, stdout, wait_for_exit, wait_until};
use crate::schema::assert_matches_schema;

/// A reflector on loopback and its URL; it ends with the test.
struct Reflector(Child, String);

impl Reflector {
    fn new(sandbox: &Sandbox, scheme: &str) -> Self {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        drop(socket);
        let url = format!("{scheme}://127.0.0.1:{port}");
        let mut command = sandbox.command(&["reflect", &url]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the reflector ended");
        }
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
        Self(child, url)
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn imported_segment_has_the_figures_of_its_ping() {
    let sandbox = Sandbox::new();
    for scheme in ["stamp", "roundtrip", "udp"] {
        let reflector = Reflector::new(&sandbox, scheme);
        let file = sandbox.path(scheme).display().to_string();
        let ping =
            ["ping", &reflector.1, "-c", "2000", "-i", "200us", "--json", "--samples", &file];
        let output = sandbox.dwell(&ping);
        assert!(output.status.success(), "{output:?}");
        let measured = object(&output);
        sandbox.json(&["import", &file]);
        let imported = &sandbox.json(&["show", "last"])["trials"][0];
        assert_eq!(imported["packets"], measured["packets"], "{scheme}");
        assert_eq!(imported["trust"]["ring_dropped"], 0, "the segment end states it");
        let metrics = |of: &Value| of["metrics"].as_object().unwrap().clone();
        let (ours, theirs) = (metrics(imported), metrics(&measured));
        let wanted: &[&str] = match scheme {
            "stamp" => &["rtt_ns", "rtt_kernel_ns", "residence_ns", "one_way_forward_ns"],
            _ => &["rtt_ns", "rtt_kernel_ns"],
        };
        for name in wanted {
            assert!(theirs.contains_key(*name), "{scheme} measures {name}");
        }
        for (name, figures) in &theirs {
            let ours = ours.get(name).unwrap_or_else(|| panic!("{scheme}: no {name}"));
            for which in ["count", "min", "p50", "p90", "p95", "p99", "p99_9", "max"] {
                assert_eq!(ours[which], figures[which], "{scheme}: {which} of {name}");
            }
            for which in ["mean", "stddev"] {
                let of = |figures: &Value| figures[which].as_f64().unwrap();
                let (ours, theirs) = (of(ours), of(figures));
                let close = (ours - theirs).abs() <= 1e-9 * theirs.abs().max(1.0);
                assert!(close, "{scheme}: {which} of {name}: {ours} and {theirs}");
            }
        }
        for (name, value) in measured["values"].as_object().unwrap() {
            let ours = &imported["values"][name];
            if !ours.is_null() {
                assert_eq!(ours, value, "{scheme}: {name}");
            }
        }
    }
}

#[test]
fn segment_of_a_killed_ping_is_imported_up_to_its_end() {
    let sandbox = Sandbox::new();
    let reflector = Reflector::new(&sandbox, "stamp");
    let file = sandbox.path("killed").display().to_string();
    let ping =
        ["ping", &reflector.1, "-c", "1000000", "-i", "100us", "--quiet", "--samples", &file];
    let mut child = sandbox.start(&mut sandbox.command(&ping));
    wait_until("some samples are on disk", || {
        fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 100_000)
    });
    child.kill().unwrap();
    wait_for_exit(&mut child);
    let whole = sandbox.dwell(&["import", &file]);
    assert!(whole.status.success(), "{whole:?}");
    assert!(stdout(&whole).contains("cut short"), "{whole:?}");
    let sent = |run: &str| {
        let packets = sandbox.json(&["show", run])["trials"][0]["packets"].clone();
        assert_eq!(packets["lost"], 0, "{packets}");
        packets["received"].as_u64().unwrap()
    };
    let received = sent("last");
    assert!(received > 1_000, "{received}");
    // Truncates the last frame, like a power failure does.
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let cut = sandbox.dwell(&["import", &file]);
    assert!(cut.status.success() && stdout(&cut).contains("cut short"), "{cut:?}");
    // The truncated frame may have held only host samples.
    assert!((1..=received).contains(&sent("last")));
    // A file damaged in the middle loses the damaged frame and reports it.
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let output = sandbox.dwell(&["import", &file]);
    assert!(stdout(&output).contains("damaged frames left out: 1"), "{output:?}");
    assert!((1..received).contains(&sent("last")));
    // The number of warm-up probes is unknown.
    let trust = sandbox.json(&["show", "last"])["trials"][0]["trust"].clone();
    assert!(trust["warm_up_sent"].is_null(), "{trust}");
    assert!(trust["ring_dropped"].is_null(), "the missing end would have stated it: {trust}");
    // A file without a complete sample is refused.
    let runs = sandbox.query("SELECT run FROM runs").len();
    for left in [9, 400] {
        fs::write(&file, &bytes[..left]).unwrap();
        let output = sandbox.dwell(&["import", &file]);
        assert_eq!(output.status.code(), Some(2), "{left}: {}", stderr(&output));
        assert_eq!(sandbox.query("SELECT run FROM runs").len(), runs);
    }
}

#[test]
fn observations_of_one_machine_are_imported_or_refused() {
    let sandbox = Sandbox::new();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://127.0.0.1:{}", socket.local_addr().unwrap().port());
    drop(socket);
    let (came, left) = (sandbox.path("came"), sandbox.path("left"));
    let mut command = sandbox.command(&["load", "sink", &url, "--samples", came.to_str().unwrap()]);
    let mut sink = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(sink.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("udp://") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the sink ended");
    }
    std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
    let send = ["load", "traffic", &url, "--rate", "2kpps", "--size", "100B", "--duration", "2s"];
    let sent = sandbox.dwell(&[&send[..], &["--samples", left.to_str().unwrap()]].concat());
    assert!(sent.status.success(), "{sent:?}");
    Handle::open(sink.id()).unwrap().signal(Signal::Interrupt).unwrap();
    wait_for_exit(&mut sink);
    for (file, part) in [(&came, "queueing_in_ns"), (&left, "gap_ns")] {
        let imported = sandbox.json(&["import", file.to_str().unwrap()]);
        let observations = imported["samples"].as_u64().unwrap();
        assert!(observations > 300, "{imported}");
        let shown = sandbox.json(&["show", "last"]);
        assert_matches_schema("dwell.run", &shown);
        let trial = &shown["trials"][0];
        assert!(trial["metrics"][part]["count"].as_u64().unwrap() > 300, "{trial:#}");
        assert!(trial["packets"].is_null() && trial["values"]["loss_ratio"].is_null());
        // Loads send in bursts if the machine is busy, but keep their mean rate.
        let gap = trial["metrics"]["gap_ns"]["mean"].as_f64().unwrap();
        assert!((4e5..7e5).contains(&gap), "one every 500 us: {gap}");
    }
    // A machine that saw no packet has nothing to import.
    let header = Header::of_observations("load sink", url);
    let empty = SegmentWriter::new(Vec::new(), &header).unwrap().finish(0).unwrap();
    let file = sandbox.path("empty");
    fs::write(&file, empty).unwrap();
    let output = sandbox.dwell(&["import", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("no complete observation"), "{output:?}");
    assert_eq!(sandbox.query("SELECT run FROM runs").len(), 2);
}

#[test]
fn host_activity_before_the_first_packet_is_imported() {
    let sandbox = Sandbox::new();
    let header = Header::of_observations("load sink", "udp://127.0.0.1:9".to_owned());
    let mut writer = SegmentWriter::new(Vec::new(), &header).unwrap();
    let host = |at_ns| HostSample { at_ns, values: [("interrupts_per_s".to_owned(), 7.0)].into() };
    writer.push_host(&host(1_000_000_000)).unwrap();
    let address = "127.0.0.1:9".parse().unwrap();
    writer
        .push_flow(&FlowEntry {
            flow: 0,
            protocol: "udp".into(),
            from: address,
            to: address,
            from_out: None,
            to_out: None,
        })
        .unwrap();
    for id in 0..3_i64 {
        let mut stamps = PointStamps::default();
        stamps.set(Point::RxApp, Instant::from_nanos(2_000_000_000 + id * 1_000_000));
        let (id, outcome) = (id as u64, PacketOutcome::Observed);
        writer.push_observation(&PacketObservation { flow: 0, id, size: 100, outcome, stamps });
    }
    writer.push_host(&host(3_000_000_000)).unwrap();
    let file = sandbox.path("sink.samples");
    fs::write(&file, writer.finish(0).unwrap()).unwrap();
    sandbox.json(&["import", file.to_str().unwrap()]);
    let output = sandbox.dwell(&["export", "last", "--what", "host", "--format", "csv"]);
    let text = stdout(&output);
    assert!(text.contains("1000000000,interrupts_per_s") && text.contains("3000000000,"), "{text}");
}
