//! `dwell ping --explain` names a real-time thread that holds the prober's processor, and nothing
//! else that did not; it continues with /proc where the kernel or the privilege lacks something.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::clock::realtime;
use dwell_io::cpu::{self, RealTime};
use serde_json::Value;
use support::{DWELL, Server, dwell, json, said};

/// Time for which the echo server holds each packet, so that several replies arrive during a burst.
const HOLD: Duration = Duration::from_millis(5);

/// Busy time of the hog, and the time between the ends of two bursts.
const BURST: Duration = Duration::from_millis(3);
const PERIOD: Duration = Duration::from_millis(47);

/// Time after a burst within which the prober reads the replies that it delayed.
const AFTER_BURST_NS: i64 = 300_000;

/// Returns each datagram after [`HOLD`], on processor 1, until `stop`. Real-time priority keeps other
/// programs from making spikes of their own.
fn delayed_echo(socket: UdpSocket, stop: Arc<AtomicBool>) {
    cpu::place_thread(Some(1), RealTime::Required).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut held = std::collections::VecDeque::new();
    let mut buffer = [0; 2_048];
    while !stop.load(Ordering::Relaxed) {
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            held.push_back((Instant::now() + HOLD, buffer[..len].to_vec(), from));
        }
        while held.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let (_, packet, from) = held.pop_front().unwrap();
            let _ = socket.send_to(&packet, from);
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Holds processor 0 in bursts until `stop`. Returns their starts and ends on CLOCK_REALTIME.
fn hog(stop: &AtomicBool) -> Vec<(i64, i64)> {
    cpu::place_thread(Some(0), RealTime::Required).unwrap();
    let mut bursts = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let (start, since) = (realtime().as_nanos(), Instant::now());
        while since.elapsed() < BURST {
            std::hint::spin_loop();
        }
        bursts.push((start, realtime().as_nanos()));
        thread::sleep(PERIOD);
    }
    bursts
}

/// Whether a spike's main cause is waiting behind the hog.
fn names_hog(spike: &Value) -> bool {
    spike["cause"]["cause"] == "waiting" && spike["cause"]["by"] == "spike-hog"
}

fn can_run(test: &str) -> bool {
    let probe = thread::spawn(|| cpu::place_thread(Some(1), RealTime::Required).is_ok());
    let real_time = probe.join().unwrap();
    let recorder = dwell_io::bpf::FlightRecorder::start();
    match recorder {
        Ok(_) if real_time => true,
        Ok(_) => {
            println!("SKIP {test}: needs two processors and SCHED_FIFO");
            false
        }
        Err(error) => {
            println!("SKIP {test}: {error}");
            false
        }
    }
}

#[test]
fn real_time_hog_is_named_for_its_spikes_only() {
    if !can_run("real_time_hog_is_named_for_its_spikes_only") {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let server = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || delayed_echo(socket, stop))
    };
    let hog = {
        let stop = Arc::clone(&stop);
        let named = thread::Builder::new().name("spike-hog".to_owned());
        named.spawn(move || hog(&stop)).unwrap()
    };
    // Above the noise of the echo server, below the delay by most of a burst.
    let arguments = "-c 2000 -i 1ms -s 64 --cpu 0 --explain-above 5500us --json -q";
    let mut all = vec!["ping", &url];
    all.extend(arguments.split(' '));
    let output = dwell(&all);
    stop.store(true, Ordering::Relaxed);
    let bursts = hog.join().unwrap();
    server.join().unwrap();
    let summary = json(&output);
    let spikes = &summary["spikes"];
    assert_eq!(spikes["source"], "tp_btf", "{}", said(&output));
    let list = spikes["largest"].as_array().unwrap();
    let (mut made, mut named, mut others) = (0, 0, Vec::new());
    for spike in list {
        let number = |name: &str| spike[name].as_i64().unwrap();
        let (start, rtt) = (number("at_ns"), number("rtt_ns"));
        assert_eq!(sum(&spike["parts"]), rtt, "{spike}");
        let end = start + rtt;
        // The prober reads the delayed replies as soon as the burst ends.
        let is_made = bursts.iter().any(|(_, free)| (0..AFTER_BURST_NS).contains(&(end - free)));
        let is_beside = bursts.iter().all(|(busy, free)| end < *busy || *free < start);
        if is_made {
            made += 1;
            named += usize::from(names_hog(spike));
        }
        if is_beside && names_hog(spike) {
            others.push(spike);
        }
    }
    println!("{} listed, {made} made by the hog, {named} of them named", list.len());
    assert!(made >= 20, "{made} of {}", list.len());
    assert!(named * 10 >= made * 9, "{named} of {made}: {}", spikes["causes"]);
    assert!(others.is_empty(), "{others:?}");
}

/// Pings with every reply as a spike, after `prepare` in namespaces of its own (unshare(1)). `None` if
/// those are unavailable.
fn explained_in(namespaces: &str, prepare: &str, test: &str) -> Option<Output> {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let script = format!(
        "{prepare} && exec {DWELL} ping {} -c 50 -i 1ms --explain-above 1us --json -q",
        urls[0]
    );
    let output = Command::new("unshare").args([namespaces, "sh", "-c", &script]).output().unwrap();
    if output.status.code() != Some(0) && output.stdout.is_empty() {
        println!("SKIP {test}: {}", said(&output));
        return None;
    }
    Some(output)
}

/// Asserts that all spikes were divided without events of the kernel.
fn assert_divided_by_proc(spikes: &Value) {
    assert_eq!(spikes["source"], "proc", "{spikes}");
    assert_eq!((&spikes["count"], &spikes["explained"]), (&50.into(), &50.into()), "{spikes}");
    for spike in spikes["largest"].as_array().unwrap() {
        assert_eq!(sum(&spike["parts"]), spike["rtt_ns"].as_i64().unwrap(), "{spike}");
        let parts = spike["parts"].as_array().unwrap();
        let is_known = |part: &Value| {
            let known = ["own", "waiting", "in_flight", "far_end", "unexplained"];
            known.contains(&part["cause"].as_str().unwrap()) && part["by"] != "spike-hog"
        };
        assert!(parts.iter().all(is_known), "{spike}");
    }
}

fn sum(parts: &Value) -> i64 {
    parts.as_array().unwrap().iter().map(|part| part["ns"].as_i64().unwrap()).sum()
}

/// Returns the text of a warning.
fn warning<'a>(summary: &'a Value, code: &str) -> &'a str {
    let mut all = summary["trust"]["warnings"].as_array().unwrap().iter();
    let found = all.find(|warning| warning["code"] == code);
    found.unwrap_or_else(|| panic!("{}", summary["trust"]))["text"].as_str().unwrap()
}

#[test]
fn kernel_without_tracepoints_lists_them_and_uses_proc() {
    let test = "kernel_without_tracepoints_lists_them_and_uses_proc";
    // As on a kernel without CONFIG_DEBUG_INFO_BTF: its types do not exist.
    let hide = "mount -t tmpfs none /sys/kernel/btf";
    let Some(output) = explained_in("--mount", hide, test) else { return };
    let summary = json(&output);
    assert_divided_by_proc(&summary["spikes"]);
    let missing: Vec<_> = summary["spikes"]["missing"].as_array().unwrap().iter().collect();
    let text = warning(&summary, "no-kernel-events");
    for name in ["sched_switch", "sched_waking", "irq_handler_entry", "softirq_exit"] {
        assert!(missing.contains(&&Value::from(name)), "{missing:?}");
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn explain_without_cap_bpf_uses_proc() {
    let test = "explain_without_cap_bpf_uses_proc";
    // Root of a user namespace has no privilege over the kernel.
    let Some(output) = explained_in("--map-root-user", "true", test) else { return };
    let summary = json(&output);
    assert_divided_by_proc(&summary["spikes"]);
    assert_eq!(summary["spikes"]["missing"], Value::Array(Vec::new()));
    let text = warning(&summary, "no-kernel-events");
    assert!(text.contains("CAP_BPF") || text.contains("without eBPF"), "{text}");
}

#[test]
fn json_lines_end_with_a_spike_for_each_sample_above_the_limit() {
    let (_server, urls) = Server::reflect(&["stamp"], "127.0.0.1", &[]);
    let arguments = "-c 200 -i 1ms --explain-above 1us --jsonl -q";
    let mut all = vec!["ping", &urls[0]];
    all.extend(arguments.split(' '));
    let output = dwell(&all);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (spikes, samples): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line["schema"] == "dwell.spike/1");
    let received = samples.iter().filter(|sample| sample["state"] == "received");
    let by_id: BTreeMap<u64, &Value> =
        received.map(|sample| (sample["id"].as_u64().unwrap(), sample)).collect();
    assert!(by_id.len() >= 190, "{}", said(&output));
    assert_eq!(spikes.len(), by_id.len());
    for spike in &spikes {
        let sample = by_id[&spike["id"].as_u64().unwrap()];
        assert_eq!((&spike["at_ns"], &spike["rtt_ns"]), (&sample["tx_app_ns"], &sample["rtt_ns"]));
        assert_eq!(sum(&spike["parts"]), spike["rtt_ns"].as_i64().unwrap(), "{spike}");
        let is_main = |part: &&Value| {
            ["cause", "by", "pid"].iter().all(|field| part[*field] == spike["cause"][*field])
        };
        let parts = spike["parts"].as_array().unwrap();
        assert_eq!(parts.iter().filter(is_main).count(), 1, "{spike}");
    }
}
