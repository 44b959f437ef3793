//! STAMP reflectors with wrong timestamps, and the sessions that a reflector sees.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Server, dwell, json, said};

/// Bytes of a reply without TLVs.
const LEN: usize = 44;

/// A reflector that writes `stamp(n)` into T2 and T3 of its n-th reply, with NTP seconds in the
/// upper half. Returns its URL and, after `requests` requests, their sequence numbers and sessions.
fn reflector(
    requests: usize,
    stamp: impl Fn(usize) -> u64 + Send + 'static,
) -> (String, thread::JoinHandle<Vec<(u32, u16)>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let url = format!("stamp://{}", socket.local_addr().unwrap());
    let answering = thread::spawn(move || {
        let mut seen = Vec::new();
        for n in 0..requests {
            let mut request = [0; 512];
            let (len, from) = socket.recv_from(&mut request).unwrap();
            let mut reply = request;
            let stamp = stamp(n).to_be_bytes();
            reply[4..12].copy_from_slice(&stamp);
            // Error estimate: NTP format, 1 * 2^-32 s.
            reply[12..14].copy_from_slice(&[0, 1]);
            reply[16..24].copy_from_slice(&stamp);
            reply[24..28].copy_from_slice(&request[..4]);
            reply[28..38].copy_from_slice(&request[4..14]);
            reply[40] = 64;
            socket.send_to(&reply[..len], from).unwrap();
            let seq = u32::from_be_bytes(request[..4].try_into().unwrap());
            let ssid = u16::from_be_bytes(request[14..16].try_into().unwrap());
            seen.push((seq, ssid));
        }
        seen
    });
    (url, answering)
}

/// The current time as an NTP timestamp.
fn ntp_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    ((now.as_secs() + 2_208_988_800) & 0xffff_ffff) << 32 | fraction
}

fn ping(url: &str, more: &[&str]) -> Value {
    let size = LEN.to_string();
    let base = ["ping", url, "-s", &size, "-i", "0.02", "-W", "5", "--json"];
    let output = dwell(&[&base[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    json(&output)
}

#[test]
fn absurd_far_timestamps_are_void_and_counted() {
    const YEARS_66: u64 = 66 * 31_557_600;
    // The timestamps of the replies, and how many of 20 are void.
    type Lie = fn(usize) -> u64;
    let lies: [(Lie, u64); 4] = [
        (|n| ntp_now().wrapping_add(u64::from(n == 7) * (YEARS_66 << 32)), 1),
        (|n| ntp_now().wrapping_add(u64::from(n == 0) * (YEARS_66 << 32)), 1),
        (|n| ntp_now().wrapping_add((n as u64 % 2) * (YEARS_66 << 32)), 10),
        (|_| 0x0123_4567_0000_0000, 19),
    ];
    for (number, (lie, void)) in lies.into_iter().enumerate() {
        let (url, answering) = reflector(20, lie);
        let result = ping(&url, &["-c", "20", "--warm-up", "0"]);
        answering.join().unwrap();
        assert_eq!(result["packets"]["received"], 20, "lie {number} {result}");
        assert_eq!(result["values"]["far_stamps_void"], void, "lie {number} {result}");
        let warnings = result["trust"]["warnings"].to_string();
        assert!(warnings.contains("T2 and T3 that cannot be true"), "lie {number} {warnings}");
        assert_eq!(result["metrics"]["residence_ns"]["count"], 20 - void, "lie {number}");
        for metric in ["ipdv_forward_ns", "ipdv_backward_ns"] {
            // At most the round trip, which is shorter than the time-out.
            let max = result["metrics"][metric]["max"].as_i64().unwrap_or(0);
            assert!(max < 5_000_000_000, "lie {number}: {metric} {max}");
        }
    }
}

#[test]
fn counted_session_starts_at_sequence_0() {
    let (url, answering) = reflector(8 + 10, |_| ntp_now());
    let result = ping(&url, &["-c", "10"]);
    let seen = answering.join().unwrap();
    assert_eq!(result["packets"]["received"], 10);
    let (warm_up, counted) = seen.split_at(8);
    let numbers = |part: &[(u32, u16)]| part.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
    assert_eq!(numbers(counted), (0..10).collect::<Vec<_>>());
    assert_eq!(numbers(warm_up), (u32::MAX - 7..=u32::MAX).collect::<Vec<_>>());
    for (part, other) in [(warm_up, counted), (counted, warm_up)] {
        assert!(part.iter().all(|(_, ssid)| *ssid == part[0].1 && *ssid != other[0].1), "{seen:?}");
    }
}

#[test]
fn stateful_reflector_is_recognised_by_the_warm_up() {
    for (more, ratio) in [(&[][..], Value::from(0.0)), (&["--stateless"], Value::Null)] {
        let (server, urls) = Server::reflect(&["stamp"], "127.0.0.1", more);
        let result = ping(&urls[0], &["-c", "10"]);
        assert_eq!(result["values"]["loss_forward_ratio"], ratio, "{more:?} {result}");
        server.stop();
    }
}
