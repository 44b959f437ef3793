//! `dwell ping --explain` names a real-time thread that holds the prober's processor, for the spikes
//! that it makes and for no others; it continues with /proc where the kernel or the privilege lacks
//! something.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::collections::{BTreeMap, VecDeque};
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

/// Time for which the echo server holds packets, so that several replies arrive during a burst.
const HOLD: Duration = Duration::from_millis(5);

/// Hold time of every [`LONG_HOLD_EVERY`]th packet. It makes a spike that the hog does not make,
/// even if a burst lies within its flight.
const LONG_HOLD: Duration = Duration::from_millis(8);
const LONG_HOLD_EVERY: usize = 7;

/// Busy time of the hog, and the time between the ends of two bursts.
const BURST: Duration = Duration::from_millis(3);
const PERIOD: Duration = Duration::from_millis(47);

/// Time beyond the recorded ends of a burst in which the hog may have the processor: it is switched
/// in and out.
const BURST_MARGIN_NS: i64 = 100_000;

/// Time that the hog takes at least of a spike that it makes; above the noise of the server.
const MIN_MADE_NS: i64 = 400_000;

/// Returns each datagram after [`HOLD`] or [`LONG_HOLD`], on processor 1, until `stop`. Real-time
/// priority keeps other programs from making spikes of their own.
fn delayed_echo(socket: UdpSocket, stop: Arc<AtomicBool>) {
    cpu::place_thread(Some(1), RealTime::Required).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut queues = [HOLD, LONG_HOLD].map(|hold| (hold, VecDeque::new()));
    let mut buffer = [0; 2_048];
    let mut received = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            received += 1;
            let (hold, held) = &mut queues[usize::from(received.is_multiple_of(LONG_HOLD_EVERY))];
            held.push_back((Instant::now() + *hold, buffer[..len].to_vec(), from));
        }
        for (_, held) in &mut queues {
            while held.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
                let (_, packet, from) = held.pop_front().unwrap();
                let _ = socket.send_to(&packet, from);
            }
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

/// A spike, with the sample of its probe.
struct Explained {
    spike: Value,
    sample: Value,
}

impl Explained {
    fn number(&self, name: &str) -> i64 {
        self.sample[name].as_i64().unwrap_or_else(|| panic!("{name} of {}", self.sample))
    }

    /// Whether the time between send and receive call overlaps a burst.
    fn is_near(&self, bursts: &[(i64, i64)]) -> bool {
        let (start, end) = (self.number("tx_app_ns"), self.number("rx_app_ns"));
        bursts.iter().any(|(busy, free)| start < *free && *busy < end)
    }

    /// Time of bursts, each `margin` longer at either end, in which the probe needs the thread: while
    /// it is sent, and from the arrival of the reply until it is read. Without kernel timestamps, the
    /// whole round trip.
    fn hog_time(&self, bursts: &[(i64, i64)], margin: i64) -> i64 {
        let flight = ["tx_kernel_ns", "rx_kernel_ns"].map(|name| self.sample[name].as_i64());
        let (start, end) = (self.number("tx_app_ns"), self.number("rx_app_ns"));
        let phases = match flight {
            [Some(sent), Some(arrived)] => vec![(start, sent), (arrived, end)],
            _ => vec![(start, end)],
        };
        let overlap = |(start, end): (i64, i64)| {
            let times = bursts
                .iter()
                .map(|(busy, free)| (free + margin).min(end) - (busy - margin).max(start));
            times.map(|time| time.max(0)).sum::<i64>()
        };
        phases.into_iter().map(overlap).sum()
    }

    /// Whether the hog took most of the time above that of an undisturbed round trip.
    fn is_made_by_hog(&self, bursts: &[(i64, i64)]) -> bool {
        let hog = self.hog_time(bursts, 0);
        hog >= MIN_MADE_NS && 2 * hog > self.number("rtt_ns") - HOLD.as_nanos() as i64
    }
}

/// Pings a delayed echo for two seconds beside the hog. Returns the spikes, and the bursts.
fn ping_beside_hog(options: &str) -> (Vec<Explained>, Vec<(i64, i64)>) {
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
    let mut all = vec!["ping", &url];
    all.extend("-c 2000 -i 1ms -s 64 --jsonl -q".split(' '));
    all.extend(options.split(' '));
    let output = dwell(&all);
    stop.store(true, Ordering::Relaxed);
    let bursts = hog.join().unwrap();
    server.join().unwrap();
    let (spikes, by_id) = spikes_and_samples(&output);
    let explained = spikes.into_iter().map(|spike| {
        let sample = by_id[&spike["id"].as_u64().unwrap()].clone();
        Explained { spike, sample }
    });
    (explained.collect(), bursts)
}

/// Returns the spikes of JSON lines, and the samples of received probes by id.
fn spikes_and_samples(output: &Output) -> (Vec<Value>, BTreeMap<u64, Value>) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (spikes, samples): (Vec<_>, Vec<_>) =
        lines.partition(|line| line["schema"] == "dwell.spike/1");
    let received = samples.into_iter().filter(|sample| sample["state"] == "received");
    let by_id = received.map(|sample| (sample["id"].as_u64().unwrap(), sample)).collect();
    (spikes, by_id)
}

/// Asserts that the hog is named for the spikes that it makes, and for no others. Returns the number
/// of those that it makes.
fn assert_named_for_its_spikes_only(options: &str) -> usize {
    let (spikes, bursts) = ping_beside_hog(options);
    let made: Vec<_> = spikes.iter().filter(|spike| spike.is_made_by_hog(&bursts)).collect();
    let named = made.iter().filter(|made| names_hog(&made.spike)).count();
    let others: Vec<_> =
        spikes.iter().filter(|spike| spike.hog_time(&bursts, BURST_MARGIN_NS) == 0).collect();
    let in_flight = others.iter().filter(|other| other.is_near(&bursts)).count();
    let wrong: Vec<_> = others.iter().filter(|other| names_hog(&other.spike)).collect();
    println!(
        "{options}: {} spikes, {} made by the hog, {named} of them named; {} made by others, \
         {in_flight} of them with a burst in flight, {} named after the hog",
        spikes.len(),
        made.len(),
        others.len(),
        wrong.len()
    );
    for Explained { spike, .. } in &spikes {
        assert_eq!(sum(&spike["parts"]), spike["rtt_ns"].as_i64().unwrap(), "{spike}");
    }
    let show = |all: &[&&Explained]| {
        let texts = all.iter().map(|one| format!("{} {}", one.spike, one.sample));
        texts.collect::<Vec<_>>().join("\n")
    };
    assert!(wrong.is_empty(), "{options}: {}", show(&wrong));
    assert!(in_flight >= 5, "{options}: {in_flight} of {}", others.len());
    let unnamed: Vec<_> = made.iter().filter(|made| !names_hog(&made.spike)).collect();
    assert!(named * 10 >= made.len() * 9, "{options}: {}", show(&unnamed));
    made.len()
}

#[test]
fn real_time_hog_is_named_for_its_spikes_only() {
    if !can_run("real_time_hog_is_named_for_its_spikes_only") {
        return;
    }
    // The limit is above the noise of the echo server and below the delay by most of a burst; the
    // default one, median + 10 MAD, follows from the replies.
    for rule in ["--explain-above 5500us", "--explain"] {
        let made = assert_named_for_its_spikes_only(&format!("--cpu 0 {rule}"));
        assert!(made >= 20, "{rule}: {made}");
    }
    // Not pinned, the prober may leave the hog's processor or never be there.
    assert_named_for_its_spikes_only("--explain");
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
    let (spikes, by_id) = spikes_and_samples(&output);
    assert!(by_id.len() >= 190, "{}", said(&output));
    assert_eq!(spikes.len(), by_id.len());
    for spike in &spikes {
        let sample = &by_id[&spike["id"].as_u64().unwrap()];
        assert_eq!((&spike["at_ns"], &spike["rtt_ns"]), (&sample["tx_app_ns"], &sample["rtt_ns"]));
        assert_eq!(sum(&spike["parts"]), spike["rtt_ns"].as_i64().unwrap(), "{spike}");
        let is_main = |part: &&Value| {
            ["cause", "by", "pid"].iter().all(|field| part[*field] == spike["cause"][*field])
        };
        let parts = spike["parts"].as_array().unwrap();
        assert_eq!(parts.iter().filter(is_main).count(), 1, "{spike}");
    }
}
