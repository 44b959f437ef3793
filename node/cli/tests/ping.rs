//! Runs `dwell ping` and `dwell reflect` as programs, on loopback and in a lab, with other
//! implementations as peers.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, fs};

use dwell_io::process::Signal;
use serde_json::Value;

#[path = "support/pause.rs"]
mod pause;
mod support;
use pause::{pause, resume};
use support::{DWELL, Server, dwell, free_port, json, said, signal};

const KEY: &str = "00112233445566778899aabbccddeeff";

#[test]
fn every_protocol_is_measured_in_both_families() {
    let schemes = ["stamp", "udp", "tcp", "roundtrip", "text+udp", "text+tcp"];
    for host in ["127.0.0.1", "[::1]"] {
        let (server, urls) = Server::reflect(&schemes, host, &["--json"]);
        for url in &urls {
            let output = dwell(&["ping", url, "-c", "50", "-i", "0.001", "--json"]);
            assert_eq!(output.status.code(), Some(0), "{url} {}", said(&output));
            let result = json(&output);
            assert_eq!(result["packets"]["received"], 50, "{url}");
            assert!(result["metrics"]["rtt_ns"]["p50"].as_i64().unwrap() > 0);
            assert_eq!(
                result["metrics"]["rtt_ns"]["p99_9"],
                Value::Null,
                "50 samples do not support p99.9"
            );
            if url.starts_with("stamp") {
                assert!(result["metrics"]["residence_ns"]["count"] == 50);
                assert!(result["metrics"]["one_way_forward_ns"]["count"] == 50, "one clock");
                assert_eq!(result["values"]["loss_forward_ratio"], 0.0);
            }
        }
        let output = server.stop();
        assert_eq!(output.status.code(), Some(0), "stopping a server is success");
        assert_eq!(json(&output)["values"]["malformed"], 0);
    }
}

#[test]
fn authenticated_mode_needs_the_same_key_at_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str, mode| -> PathBuf {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let good = key("good", KEY, 0o600);
    let wrong = key("wrong", &KEY.replace('0', "1"), 0o600);
    let open = key("open", KEY, 0o644);
    let [good, wrong, open] = [&good, &wrong, &open].map(|path| path.to_str().unwrap());
    let (_server, urls) = Server::reflect(&["stamp"], "127.0.0.1", &["--key-file", good]);
    let ping = |more: &[&str]| {
        let base = ["ping", &urls[0], "-c", "5", "-i", "0.01", "--json"];
        dwell(&[&base[..], more].concat())
    };
    let measured = ping(&["--key-file", good, "-W", "5"]);
    assert_eq!(measured.status.code(), Some(0), "{}", said(&measured));
    assert_eq!(json(&measured)["metrics"]["one_way_forward_ns"]["count"], 5);
    for refused in [ping(&["-W", "0.2"]), ping(&["--key-file", wrong, "-W", "0.2"])] {
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(json(&refused)["packets"]["lost"], 5, "the result is printed nevertheless");
    }
    let readable = ping(&["--key-file", open]);
    assert_eq!(readable.status.code(), Some(2));
    assert!(said(&readable).contains("chmod 600"), "{}", said(&readable));
}

#[test]
fn late_reply_does_not_desync_later_cycles() {
    // The master of Roedlach/Vock matches by order: after one late reply every later cycle fails.
    for host in ["127.0.0.1:0", "[::1]:0"] {
        late_reply(UdpSocket::bind(host).unwrap());
    }
}

fn late_reply(socket: UdpSocket) {
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let url = format!("roundtrip://{}", socket.local_addr().unwrap());
    let slave = thread::spawn(move || {
        let mut buffer = [0; 64];
        let mut held: Option<([u8; 24], std::net::SocketAddr)> = None;
        for _ in 0..21 {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            let mut reply: [u8; 24] = buffer[..len].try_into().unwrap();
            reply[20..].copy_from_slice(b"ACK\0");
            if reply[16] == 5 {
                held = Some((reply, from));
                continue;
            }
            socket.send_to(&reply, from).unwrap();
            // The reply of cycle 5 is sent after that of cycle 8.
            if let Some((late, to)) = held.take_if(|_| reply[16] == 8) {
                socket.send_to(&late, to).unwrap();
            }
        }
    });
    let arguments =
        ["ping", &url, "-c", "20", "--closed-loop", "-W", "2", "--warm-up", "1", "--json"];
    let output = dwell(&arguments);
    slave.join().unwrap();
    let packets = &json(&output)["packets"];
    assert_eq!(packets["received"], 19, "{packets}");
    assert_eq!((&packets["late"], &packets["lost"]), (&Value::from(1), &Value::from(0)));
}

#[test]
fn reply_during_a_stop_is_late_only_without_kernel_stamp() {
    for stamps in ["kernel", "user"] {
        for waiting in [&[][..], &["--busy-poll"]] {
            let in_time = stamps == "kernel";
            let packets = stopped_pinger(&[&["--stamps", stamps], waiting].concat());
            let expected = if in_time { (20, 0, 0) } else { (19, 1, 0) };
            let count = |name: &str| packets[name].as_i64().unwrap();
            assert_eq!((count("received"), count("late"), count("lost")), expected, "{stamps}");
        }
    }
}

/// Stops the pinger for two time-outs before the reply to its tenth probe is sent; returns its
/// packet counts.
fn stopped_pinger(more: &[&str]) -> Value {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let mut command = Command::new(DWELL);
    command.args([
        "ping",
        &url,
        "-c",
        "20",
        "--closed-loop",
        "-W",
        "1",
        "--warm-up",
        "0",
        "--json",
    ]);
    let pinger = command.args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut buffer = [0; 2_048];
    for n in 0..20 {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        if n == 10 {
            pause(&pinger);
        }
        socket.send_to(&buffer[..len], from).unwrap();
        if n == 10 {
            thread::sleep(Duration::from_secs(2));
            resume(&pinger);
        }
    }
    json(&pinger.wait_with_output().unwrap())["packets"].clone()
}

#[test]
fn wrong_ping_option_exits_2_with_the_correction() {
    let cases: &[(&[&str], &str)] = &[
        (&["gopher://127.0.0.1"], "unknown scheme"),
        (&["udp://127.0.0.1:0"], "from 1 to 65535"),
        (&["udp://127.0.0.1:70000"], "from 1 to 65535"),
        (&["udp://127.0.0.1"], "no default port"),
        (&["stamp://127.0.0.1", "-s", "43"], "at least 44"),
        (&["stamp://127.0.0.1", "-s", "45"], "44 or 48"),
        (&["udp://127.0.0.1:9", "-s", "65508"], "65507"),
        (&["roundtrip://127.0.0.1:9", "-s", "30"], "leave -s out"),
        (&["stamp://no-such-host.invalid"], "cannot resolve"),
        (&["udp://127.0.0.1:9", "-i", "0"], "--closed-loop"),
        (&["udp://127.0.0.1:9", "-c", "0"], "0"),
        (&["udp://127.0.0.1:9", "--cpu", "4000"], "--cpu"),
        (&["udp://127.0.0.1:9", "--pause", "10"], "unit"),
        (&["udp://127.0.0.1:9", "--fail-if", "p99 > 10"], "--fail-if"),
        (&["udp://127.0.0.1:9", "--fail-if", "wire.p99 > 10ms"], "known are rtt, rtt_kernel"),
        (&["udp://127.0.0.1:9", "--fail-if", "p99 change > 10%"], "only dwell compare"),
        (&["udp://127.0.0.1:9", "--key-file", "x"], "stamp://"),
        (&["udp://127.0.0.1:9", "-I", "nonesuch0"], "nonesuch0"),
    ];
    for (arguments, text) in cases {
        let output = dwell(&[&["ping"], *arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {}", said(&output));
        assert!(said(&output).contains(text), "{arguments:?} said {}", said(&output));
        assert!(!said(&output).contains("panicked"));
    }
    let reflect = dwell(&["reflect", "icmp://127.0.0.1"]);
    assert_eq!(reflect.status.code(), Some(2));
    assert!(said(&reflect).contains("kernel answers"));
    assert_eq!(dwell(&["reflect", "127.0.0.1"]).status.code(), Some(2), "no scheme");
}

#[test]
fn silent_target_exits_1_with_a_result() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let output = dwell(&["ping", &url, "-c", "3", "-i", "0.01", "-W", "0.1", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("no reply"));
    assert_eq!(json(&output)["packets"]["lost"], 3);
}

#[test]
fn probes_in_flight_on_a_broken_connection_are_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let peer = thread::spawn(move || {
        // Three probes are echoed; two more are read and not answered.
        let (mut stream, _) = listener.accept().unwrap();
        let mut probes = [0; 5 * 64];
        stream.read_exact(&mut probes[..3 * 64]).unwrap();
        stream.write_all(&probes[..3 * 64]).unwrap();
        stream.read_exact(&mut probes[3 * 64..]).unwrap();
    });
    let probes = ["-s", "64", "-c", "100", "-i", "0.5", "-W", "5", "--warm-up", "0"];
    let output = dwell(&[&["ping", &url, "--json"], &probes[..]].concat());
    peer.join().unwrap();
    let packets = &json(&output)["packets"];
    assert_eq!((&packets["received"], &packets["lost"]), (&3.into(), &2.into()), "{packets}");
    assert_eq!(packets["sent"], 5);
}

#[test]
fn plain_echo_is_not_a_stamp_reflector() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let url = urls[0].replace("udp", "stamp");
    let output = dwell(&["ping", &url, "-c", "5", "-i", "0.01", "-W", "0.2", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let packets = &json(&output)["packets"];
    assert_eq!((&packets["lost"], &packets["duplicate"]), (&5.into(), &0.into()), "{packets}");
}

#[test]
fn threshold_decides_the_exit_code() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let base = ["ping", &urls[0], "-c", "40", "-i", "0.001", "--json"];
    let exit = |conditions: &[&str]| {
        let conditions = conditions.iter().flat_map(|condition| ["--fail-if", *condition]);
        let arguments: Vec<_> = base.into_iter().chain(conditions).collect();
        let output = dwell(&arguments);
        (output.status.code(), said(&output))
    };
    assert_eq!(exit(&["p50 > 1ns"]).0, Some(3));
    assert_eq!(exit(&["p50 > 10s"]).0, Some(0));
    assert_eq!(exit(&["rtt.p50 > 1ns"]).0, Some(3));
    assert_eq!(exit(&["rtt_minus_residence.p50 > 1ns"]).0, Some(5), "UDP echo has no residence");
    let (code, said) = exit(&["p99 > 10s"]);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("p99 > 10s: cannot tell") && said.contains("299 or more"), "{said}");
    assert_eq!(exit(&["loss > 1%"]).0, Some(5), "40 probes do not bound a loss of 1 %");
    assert_eq!(exit(&["p99 > 10s", "p50 > 1ns"]).0, Some(3), "a failed threshold wins");
    assert_eq!(exit(&["p50 > 1ns", "p99 > 10s"]).0, Some(3), "in either order");
}

#[test]
fn interrupt_prints_the_result_so_far() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let child = Command::new(DWELL)
        .args(["ping", &urls[0], "-i", "0.005", "--jsonl"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Server { child };
    let stdout = child.child.stdout.take().unwrap();
    // The first line proves that probes are being sent. The pipe stays open: writing to a closed
    // pipe would end the command in another way than the signal.
    let mut lines = BufReader::new(stdout).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(serde_json::from_str::<Value>(&first).unwrap()["rtt_ns"].is_i64(), "{first}");
    signal(&child.child, Signal::Interrupt);
    assert_eq!(child.child.wait().unwrap().code(), Some(130));
}

#[test]
fn interrupt_during_the_stamp_attempt_exits_130() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let target = silent.local_addr().unwrap().to_string();
    let child = Command::new(DWELL)
        .args(["ping", &target, "-c", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let ping = Server { child };
    // The first probe proves that the attempt has started.
    silent.recv_from(&mut [0; 2_048]).unwrap();
    let (code, printed, said) = interrupted(ping);
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(said, "dwell: interrupted before anything was measured\n");
    assert_eq!(printed, "");
}

/// Interrupts a command; returns its exit code, its standard output and its standard error.
fn interrupted(mut command: Server) -> (Option<i32>, String, String) {
    signal(&command.child, Signal::Interrupt);
    let (mut printed, mut said) = (String::new(), String::new());
    command.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    command.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (command.child.wait().unwrap().code(), printed, said)
}

#[test]
fn full_disk_at_start_fails_before_measuring() {
    let (server, urls) = Server::reflect(&["udp"], "127.0.0.1", &["--json"]);
    let output =
        dwell(&["ping", &urls[0], "-c", "5", "-i", "0.01", "--json", "--csv", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/dev/full"), "{}", said(&output));
    assert_eq!(json(&server.stop())["values"]["requests"], 0);
}

#[test]
fn full_disk_loses_rows_but_not_the_result() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let dir = tempfile::tempdir().unwrap();
    // A 4 KiB file system in a mount namespace that ends with the command.
    let script = format!(
        "mount -t tmpfs -o size=4k tmpfs {0} && {DWELL} ping {1} -c 300 -i 2ms --json \
         --csv {0}/rows.csv && exit 9; code=$?; cat {0}/rows.csv >&2; exit $code",
        dir.path().display(),
        urls[0]
    );
    // Root needs no user namespace, which may be forbidden.
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let as_root: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let output = Command::new("unshare")
        .args(as_root)
        .args(["--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    if said(&output).contains("unshare failed") {
        println!("SKIP full_disk_loses_rows_but_not_the_result: {}", said(&output));
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let said = said(&output);
    assert!(said.contains("rows.csv") && said.contains("No space left"), "{said}");
    let result = json(&output);
    assert_eq!(result["packets"]["received"], 300);
    assert!(result["metrics"]["rtt_ns"]["p50"].is_u64());
    // The rows written before the disk was full are readable.
    assert!(said.contains("id,state,") && said.contains("\n0,received,"), "{said}");
}

#[test]
fn replies_after_the_warm_up_still_set_the_stamp_source() {
    // Every reply is delayed by eight requests: 80 ms, longer than the warm-up of 50 ms.
    const REQUESTS: usize = 5 + 30;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let echo = thread::spawn(move || {
        let mut buffer = [0; 256];
        let mut held = std::collections::VecDeque::new();
        for n in 1..=REQUESTS {
            let (len, from) = socket.recv_from(&mut buffer).unwrap();
            held.push_back((buffer[..len].to_vec(), from));
            while held.len() > 8 || n == REQUESTS && !held.is_empty() {
                let (reply, to) = held.pop_front().unwrap();
                socket.send_to(&reply, to).unwrap();
            }
        }
    });
    let output = dwell(&["ping", &url, "-c", "30", "-i", "10ms", "--warm-up", "5", "--json"]);
    echo.join().unwrap();
    let result = json(&output);
    assert_eq!(result["packets"]["received"], 30, "{}", said(&output));
    assert_eq!(result["metrics"]["rtt_kernel_ns"]["count"], 30);
    assert_eq!(
        (&result["stamps"]["tx"], &result["stamps"]["rx"]),
        (&"kernel-sw".into(), &"kernel-sw".into())
    );
}

#[test]
fn closed_jsonl_reader_ends_the_run_with_success() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    let mut ping = Command::new(DWELL)
        .args(["ping", &urls[0], "-i", "1ms", "--jsonl"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(ping.stdout.take().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str::<Value>(&line).unwrap();
    // Without a count it would run forever.
    assert_eq!(ping.wait().unwrap().code(), Some(0));
}

#[test]
fn thresholds_are_judged_when_the_row_reader_closes() {
    let (_server, urls) = Server::reflect(&["udp"], "127.0.0.1", &[]);
    for rows in [&["--jsonl"][..], &["--csv", "-", "-q"]] {
        let exit = |condition: &str| {
            let child = Command::new(DWELL)
                .args(["ping", &urls[0], "-i", "1ms", "--fail-if", condition])
                .args(rows)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut ping = Server { child };
            let mut lines = BufReader::new(ping.child.stdout.take().unwrap()).lines();
            // The first CSV line is the header; the second shows that a reply arrived.
            assert!(lines.by_ref().take(2).all(|line| line.is_ok()));
            drop(lines);
            ping.child.wait().unwrap().code()
        };
        assert_eq!(exit("p50 > 1ns"), Some(3), "{rows:?}");
        assert_eq!(exit("p50 > 10s"), Some(0), "{rows:?}");
    }
}

#[test]
fn socat_is_measured_as_a_udp_and_a_tcp_echo() {
    const TEST: &str = "socat_is_measured_as_a_udp_and_a_tcp_echo";
    if Command::new("socat").arg("-V").output().is_err() {
        println!("SKIP {TEST}: socat is not installed (make setup)");
        return;
    }
    for (host, v6) in [("127.0.0.1", ""), ("[::1]", "6")] {
        let (udp, tcp) = (free_port(host), free_port(host));
        let flag = if v6.is_empty() { "4" } else { "6" };
        let listeners = [
            ("udp", udp, format!("UDP{flag}-RECVFROM:{udp},bind={host},fork"), "EXEC:cat"),
            ("tcp", tcp, format!("TCP{flag}-LISTEN:{tcp},bind={host},fork"), "PIPE"),
        ];
        for (scheme, port, listen, echo) in listeners {
            let mut command = Command::new("socat");
            // -t: a reply is still sent after its request has ended.
            command
                .args(["-dd", "-t", "10", &listen, echo])
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            command.stderr(Stdio::null());
            let _server = Server { child: command.spawn().unwrap() };
            let url = format!("{scheme}://{host}:{port}");
            let one = ["ping", &url, "-c", "1", "-W", "0.2", "--warm-up", "0", "-q"];
            let ready = (0..100).any(|_| dwell(&one).status.success());
            assert!(ready, "{url} answers");
            let arguments = ["ping", &url, "-c", "20", "-i", "0.02", "--warm-up", "1", "-W", "10"];
            let output = dwell(&[&arguments[..], &["--json"]].concat());
            assert_eq!(json(&output)["packets"]["received"], 20, "{url} {}", said(&output));
        }
    }
}

/// Path of the peer that `make peers` builds in the target directory.
fn stamp_suite(test: &str) -> Option<PathBuf> {
    let target = Path::new(DWELL).parent().and_then(Path::parent).unwrap();
    let program = target.join("peers/bin/stamp-suite");
    if !program.exists() {
        println!("SKIP {test}: stamp-suite is not built (make peers)");
        return None;
    }
    Some(program)
}

#[test]
fn foreign_stamp_sender_is_answered_in_both_modes() {
    let Some(peer) = stamp_suite("foreign_stamp_sender_is_answered_in_both_modes") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, KEY).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    for (host, theirs_host, any) in [("127.0.0.1", "127.0.0.1", "0.0.0.0"), ("[::1]", "::1", "::")]
    {
        for (ours, theirs) in [
            (vec!["--json"], vec!["-A", "O"]),
            (vec!["--json", "--key-file", key], vec!["-A", "A", "--hmac-key", KEY]),
        ] {
            let (server, urls) = Server::reflect(&["stamp"], host, &ours);
            let port = urls[0].rsplit(':').next().unwrap();
            let output = Command::new(&peer)
                .args(["-r", theirs_host, "-S", any, "-p", port, "-c", "10", "-d", "10"])
                .args(&theirs)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("Packets received: 10"), "{theirs:?} {text} {}", said(&output));
            assert_eq!(json(&server.stop())["values"]["replies"], 10);
        }
    }
}

#[test]
fn foreign_stamp_reflector_is_measured_in_both_modes() {
    const TEST: &str = "foreign_stamp_reflector_is_measured_in_both_modes";
    let Some(peer) = stamp_suite(TEST) else { return };
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, KEY).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key = key.to_str().unwrap();
    for (host, theirs_host) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")] {
        for (ours, theirs) in [
            (vec![], vec!["-A", "O"]),
            (vec!["--key-file", key], vec!["-A", "A", "--hmac-key", KEY]),
        ] {
            let port = free_port(host).to_string();
            let mut command = Command::new(&peer);
            command.args(["-i", "-S", theirs_host, "-o", &port]).args(&theirs);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let server = Server { child: command.spawn().unwrap() };
            let url = format!("stamp://{host}:{port}");
            let ping = |more: &[&str]| dwell(&[&["ping", &url], &ours[..], more].concat());
            // The peer prints nothing when it is ready, so wait for an answered probe.
            let ready = (0..50).any(|_| ping(&["-c", "1", "-W", "0.1", "-q"]).status.success());
            assert!(ready, "the peer answers {ours:?} at {url}");
            let output = ping(&["-c", "50", "-i", "0.002", "--json"]);
            drop(server);
            let result = json(&output);
            assert_eq!(result["packets"]["received"], 50);
            assert_eq!(result["parameters"]["authenticated"], !ours.is_empty());
            assert_eq!(result["metrics"]["residence_ns"]["count"], 50);
            assert_eq!(
                result["metrics"]["one_way_forward_ns"],
                Value::Null,
                "the peer's clock is not known to be ours"
            );
        }
    }
}

#[test]
fn scapy_reads_our_packets() {
    const TEST: &str = "scapy_reads_our_packets";
    let python = "/usr/bin/python3";
    let import = Command::new(python).args(["-c", "import scapy.contrib.stamp"]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        println!("SKIP {TEST}: python3-scapy is not installed (make setup)");
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let url = format!("stamp://{}", socket.local_addr().unwrap());
    let pinger =
        thread::spawn(move || dwell(&["ping", &url, "-c", "1", "-W", "0.1", "--warm-up", "0"]));
    let mut packet = [0; 200];
    let (len, _) = socket.recv_from(&mut packet).unwrap();
    pinger.join().unwrap();
    let hex: String = packet[..len].iter().map(|byte| format!("{byte:02x}")).collect();
    // scapy takes the length from the UDP header.
    let script = "import sys
from scapy.contrib.stamp import STAMPSessionSenderTestUnauthenticated as S
from scapy.layers.inet import UDP
b = bytes.fromhex(sys.argv[1])
p = S(b, _parent=UDP(len=8 + len(b)))
print(p.seq, p.ssid != 0, len(p.tlv_objects), p.tlv_objects[0].type)";
    let output = Command::new(python).args(["-c", script, &hex]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0 True 2 240", "{}", said(&output));
}

#[test]
fn reported_loss_and_rtt_match_the_link_log() {
    const TEST: &str = "reported_loss_and_rtt_match_the_link_log";
    let name = format!("t{}-loss", std::process::id());
    let up = dwell(&[
        "lab",
        "up",
        "line:2",
        "--name",
        &name,
        "--mechanism",
        "tap",
        "--delay",
        "5ms",
        "--loss",
        "5%",
        "--seed",
        "7",
    ]);
    if up.status.code() == Some(4) {
        println!("SKIP {TEST}: {}", said(&up));
        return;
    }
    assert!(up.status.success(), "{}", said(&up));
    let outcome = std::panic::catch_unwind(|| exact_loss(&name));
    assert!(dwell(&["lab", "down", &name]).status.success());
    outcome.unwrap();
}

fn exact_loss(name: &str) {
    let exec = |node: &'static str| ["lab", "exec", "--lab", name, node, "--", DWELL];
    let mut reflector = Command::new(DWELL);
    let urls = ["roundtrip://0.0.0.0:7100", "roundtrip://[::]:7100"];
    reflector.args(exec("n2")).arg("reflect").args(urls);
    let _reflector = Server::ready(reflector, "listening on", 2);
    let list = dwell(&["lab", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let lab = list["labs"].as_array().unwrap().iter().find(|lab| lab["name"] == name).unwrap();
    let log = lab["links"][0]["event_log"].as_str().unwrap();
    let events = || fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    for family in ["-4", "-6"] {
        let before = events().len();
        let csv = env::temp_dir().join(format!("{name}{family}.csv"));
        let ping = ["ping", family, "roundtrip://n2:7100", "-c", "1000", "-i", "0.002"];
        // Longer than any stall of a busy host.
        let rows = ["-W", "3", "--warm-up", "0", "--json", "--csv", csv.to_str().unwrap()];
        let result = json(&dwell(&[&exec("n1")[..], &ping, &rows].concat()));
        let reported: BTreeSet<u32> = fs::read_to_string(&csv)
            .unwrap()
            .lines()
            .filter_map(|row| row.split_once(',').filter(|(_, rtt)| rtt.trim() == "NaN"))
            .map(|(id, _)| id.trim().parse().unwrap())
            .collect();
        fs::remove_file(&csv).unwrap();
        let dropped: BTreeSet<u32> = events()[before..]
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|event| event["action"] == "drop" && event["proto"] == 17)
            .map(|event| {
                let head = event["payload_head"].as_str().unwrap();
                u32::from_str_radix(&head[32..40], 16).unwrap().swap_bytes()
            })
            .collect();
        assert!(dropped.len() > 20, "{family}: 5 % both ways of 1,000: {}", dropped.len());
        assert_eq!(reported, dropped, "{family}");
        assert_eq!(result["packets"]["lost"], dropped.len());
        // A busy machine only adds to the link's delay.
        let least = result["metrics"]["rtt_ns"]["min"].as_f64().unwrap();
        assert!((10e6..10.5e6).contains(&least), "10 ms of delay, minimum {least} ns measured");
    }
}

#[test]
fn packet_dropped_by_the_queue_shifts_no_stamp() {
    const TEST: &str = "packet_dropped_by_the_queue_shifts_no_stamp";
    let name = format!("t{}-full", std::process::id());
    let up = dwell(&["lab", "up", "line:2", "--name", &name, "--rate", "2Mbit/s"]);
    if up.status.code() == Some(4) {
        println!("SKIP {TEST}: {}", said(&up));
        return;
    }
    assert!(up.status.success(), "{}", said(&up));
    let outcome = std::panic::catch_unwind(|| full_queue(&name));
    assert!(dwell(&["lab", "down", &name]).status.success());
    outcome.unwrap();
}

fn full_queue(name: &str) {
    let exec = |node: &'static str| ["lab", "exec", "--lab", name, node, "--", DWELL];
    let mut reflector = Command::new(DWELL);
    reflector.args(exec("n2")).args(["reflect", "udp://0.0.0.0:7100"]);
    let _reflector = Server::ready(reflector, "listening on", 1);
    let mut load = Command::new(DWELL);
    load.args(exec("n1")).args(["load", "traffic", "udp://n2:9", "--rate", "3Mbit/s"]);
    load.args(["--flows", "8", "--duration", "20s"]);
    let _load = Server::ready(load, "sending 8 flows", 1);
    let csv = env::temp_dir().join(format!("{name}.csv"));
    let ping = ["ping", "-4", "udp://n2:7100", "-s", "1400", "-i", "0.02", "-c", "200", "--json"];
    let rows = ["-W", "5", "--csv", csv.to_str().unwrap()];
    let result = json(&dwell(&[&exec("n1")[..], &ping, &rows].concat()));
    let text = fs::read_to_string(&csv).unwrap();
    fs::remove_file(&csv).unwrap();
    assert!(result["packets"]["send_failed"].as_u64() > Some(5), "the queue was full {result}");
    let mut lines = text.lines();
    let names: Vec<_> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|n| *n == name).unwrap();
    let (state, tx_app, tx_kernel) = (column("state"), column("tx_app_ns"), column("tx_kernel_ns"));
    let (rtt, rtt_kernel) = (column("rtt_ns"), column("rtt_kernel_ns"));
    let mut received = 0;
    for row in lines {
        let cells: Vec<_> = row.split(',').collect();
        if cells[state] != "received" {
            continue;
        }
        received += 1;
        let ns = |at: usize| cells[at].parse::<i64>().unwrap_or_else(|_| panic!("no stamp: {row}"));
        assert!(ns(tx_app) <= ns(tx_kernel), "stamped before it was sent: {row}");
        assert!(ns(rtt_kernel) <= ns(rtt), "the timestamp belongs to another packet: {row}");
    }
    assert!(received > 20, "{result}");
}
