//! `dwell ping --explain` names a real-time thread that holds the prober's processor, and nothing
//! else that did not.

#[expect(dead_code, reason = "other test programs use the rest")]
mod support;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_io::clock::realtime;
use dwell_io::cpu::{self, RealTime};
use serde_json::Value;
use support::{dwell, json, said};

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
        let parts = spike["parts"].as_array().unwrap();
        let sum: i64 = parts.iter().map(|part| part["ns"].as_i64().unwrap()).sum();
        assert_eq!(sum, rtt, "{spike}");
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
