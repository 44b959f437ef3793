//! `dwell ping --stamps driver` between two nodes: the order of the three round trips, probes that
//! leave through an interface without transmit timestamps, loss and reordering, interfaces without
//! native XDP or with another program, missing privileges, and the end of the program.

use std::process::{Command, Stdio};

use dwell_io::bpf::{Hook, Pass, XdpMode};
use dwell_io::{interface, netns};
use serde_json::Value;

use crate::fixture::{DWELL, Running, TestLab, as_root, assert_follows, has, said, until};

/// Pings from n1 with timestamps of the driver; returns the summary and the rows.
fn ping(lab: &TestLab, arguments: &[&str]) -> (Value, Vec<Value>) {
    let rows = tempfile::NamedTempFile::new().unwrap();
    let path = rows.path().to_str().unwrap();
    let fixed = [DWELL, "ping", "--stamps", "driver", "-q", "--json", "--csv", path];
    let output = lab.exec("n1", &[&fixed, arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_follows("dwell.summary-1", &summary);
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let row = |cells: Vec<&str>| {
        let number = |cell: &str| cell.parse::<i64>().map_or_else(|_| cell.into(), Value::from);
        names.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), number(cell))).collect()
    };
    (summary, lines.map(row).collect())
}

fn number(row: &Value, name: &str) -> i64 {
    row[name].as_i64().unwrap_or_else(|| panic!("{name} of {row}"))
}

#[test]
fn three_round_trips_are_ordered_in_every_protocol() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-order", &["line:2"]);
    let urls = ["stamp://[::]:862", "stamp://0.0.0.0:862", "udp://[::]:7", "udp://0.0.0.0:7"];
    let urls = [&urls[..], &["roundtrip://0.0.0.0:4000", "text+udp://0.0.0.0:4001"]].concat();
    let reflector = Running::start(&lab, "n2", "text+udp", &[&["reflect"], &urls[..]].concat());
    for target in [
        &["-4", "stamp://n2"][..],
        &["-6", "stamp://n2"],
        &["-4", "udp://n2:7"],
        &["-6", "udp://n2:7"],
        &["-4", "icmp://n2"],
        &["-6", "icmp://n2"],
        &["-4", "--icmp-socket", "raw", "-s", "4", "icmp://n2"],
        &["-4", "text+udp://n2:4001", "--pause", "1ms"],
    ] {
        let mut arguments = vec!["-c", "100"];
        if !target.contains(&"--pause") {
            arguments.extend(["-i", "0.001"]);
        }
        arguments.extend(target);
        let (summary, rows) = ping(&lab, &arguments);
        let driver = &summary["driver"];
        assert_eq!((&driver["tx"], &driver["absent"]), (&"tx_kernel".into(), &Value::Null));
        assert_eq!((&driver["stamped"], &driver["unseen"]), (&100.into(), &0.into()), "{target:?}");
        assert_eq!((&driver["unmatched"], &driver["lost"]), (&0.into(), &0.into()), "{target:?}");
        assert_eq!(summary["stamps"]["rx"], "driver");
        assert_eq!(summary["metrics"]["rtt_driver_ns"]["count"], 100);
        assert_eq!(driver["layers"].as_array().unwrap().len(), 3);
        for row in &rows {
            let [driver, kernel, program] =
                ["rtt_driver_ns", "rtt_kernel_ns", "rtt_ns"].map(|name| number(row, name));
            assert!(0 < driver && driver <= kernel && kernel <= program, "{target:?} {row}");
        }
    }
    drop(reflector.end());
}

/// Moves the addresses and routes of n1's interface to a bridge above it. Its driver takes no transmit
/// timestamps. Returns the name of the interface.
fn put_under_a_bridge(lab: &TestLab) -> String {
    let all = netns::within(&lab.netns("n1"), interface::all).unwrap().unwrap();
    let name = all.into_iter().find(|found| found.index == link(lab)).unwrap().name;
    let ip = |arguments: &str| {
        let words: Vec<_> = ["ip"].into_iter().chain(arguments.split(' ')).collect();
        let output = lab.exec("n1", &words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let addresses = ip(&format!("-o addr show dev {name} scope global"));
    let routes = ["-4", "-6"].map(|v| (v, ip(&format!("{v} route show dev {name} proto static"))));
    ip("link add up0 type bridge");
    ip(&format!("addr flush dev {name} scope global"));
    ip(&format!("link set {name} master up0"));
    ip("link set up0 up");
    for line in addresses.lines() {
        let mut words = line.split_whitespace().skip_while(|word| !word.starts_with("inet"));
        let (family, address) = (words.next().unwrap(), words.next().unwrap());
        ip(&format!("addr add {address} dev up0{}", if family == "inet6" { " nodad" } else { "" }));
    }
    for (family, routes) in &routes {
        for route in routes.lines() {
            // Destination, "via", gateway, "src", source.
            let words: Vec<_> = route.split_whitespace().take(5).collect();
            ip(&format!("{family} route replace {} dev up0", words.join(" ")));
        }
    }
    let all = netns::within(&lab.netns("n1"), interface::all).unwrap().unwrap();
    let bridge = all.iter().find(|found| found.name == "up0").unwrap();
    assert!(!bridge.stamping.unwrap().tx_software, "{bridge:?}");
    name
}

#[test]
fn probes_without_driver_stamps_are_stamped_at_tcx() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-tcx", &["line:2"]);
    let name = put_under_a_bridge(&lab);
    let urls = ["stamp://[::]:862", "stamp://0.0.0.0:862", "udp://0.0.0.0:7"];
    let urls = [&urls[..], &["roundtrip://0.0.0.0:4000"]].concat();
    let reflector = Running::start(&lab, "n2", "roundtrip", &[&["reflect"], &urls[..]].concat());
    for target in [
        &["-4", "stamp://n2"][..],
        &["-6", "stamp://n2"],
        &["-4", "udp://n2:7"],
        &["-4", "roundtrip://n2:4000"],
        &["-4", "icmp://n2"],
        &["-6", "icmp://n2"],
        &["-4", "--icmp-socket", "raw", "-s", "4", "icmp://n2"],
    ] {
        let arguments = ["--interface", &name, "-c", "100", "-i", "0.001"];
        let (summary, rows) = ping(&lab, &[&arguments[..], target].concat());
        let driver = &summary["driver"];
        assert_eq!((&driver["tx"], &driver["absent"]), (&"tx_tcx".into(), &Value::Null));
        assert_eq!((&driver["stamped"], &driver["unseen"]), (&100.into(), &0.into()), "{target:?}");
        assert_eq!(summary["metrics"]["rtt_driver_ns"]["count"], 100, "{target:?}");
        assert_eq!(driver["layers"].as_array().unwrap().len(), 3);
        assert_eq!(rows.len(), 100, "{target:?}");
        // The rows of roundtrip:// have no timestamps.
        for row in rows.iter().filter(|row| row["tx_app_ns"].is_i64()) {
            // Each probe has the timestamp of its own frame, between its other timestamps.
            let places = ["tx_app_ns", "tx_tcx_ns", "rx_driver_ns", "rx_kernel_ns", "rx_app_ns"];
            let times = places.map(|name| number(row, name));
            assert!(times.is_sorted(), "{target:?} {row}");
            assert_eq!(number(row, "rtt_driver_ns"), times[2] - times[1], "{row}");
        }
    }
    drop(reflector.end());
    // Without --json, the lines name the timestamp.
    let output = lab.exec(
        "n1",
        &[DWELL, "ping", "-q", "-c", "5", "--interface", &name, "--stamps", "driver", "icmp://n2"],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("network and far end (tx_tcx to rx_driver)"), "{text}");
}

#[test]
fn range_uses_and_names_the_stamps_of_the_driver() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-range", &["line:2"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("near.json");
    let file = file.to_str().unwrap();
    let driver = ["--stamps", "driver", "-c", "100", "-i", "1ms", "-q", "icmp://n2"];
    let calibrate = [DWELL, "range", "calibrate", "--distance", "1m", "--output", file];
    let output = lab.exec("n1", &[&calibrate[..], &driver].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(file).unwrap();
    let calibration: Value = serde_json::from_str(&text).unwrap();
    assert_follows("dwell.range-calibration-1", &calibration);
    assert_eq!(calibration["source"]["stamps"], "driver", "{calibration}");
    let range = [DWELL, "range", "--calibration", file];
    let output = lab.exec("n1", &[&range[..], &driver, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_follows("dwell.range-1", &result);
    assert_eq!(result["source"]["stamps"], "driver", "{result}");
    let output = lab.exec("n1", &[&[DWELL, "range"][..], &driver].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().next().unwrap().ends_with("icmp with driver stamps"), "{text}");
    // The delay between other timestamps is another.
    let kernel = ["--stamps", "kernel", "-c", "100", "-i", "1ms", "-q", "icmp://n2"];
    let output = lab.exec("n1", &[&range[..], &kernel].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let expected = "the timestamp source was driver at the calibration and is kernel-sw now";
    assert!(said(&output).contains(expected), "{}", said(&output));
}

#[test]
fn unprivileged_driver_stamps_exit_with_the_remedy() {
    if !as_root() || !has("setpriv") {
        return;
    }
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", "--clear-groups", "--reuid=65534", "--"])
        .args([DWELL, "ping", "-c", "1", "--stamps", "driver", "udp://127.0.0.1:7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output));
    assert!(said(&output).contains("run it as root (sudo)"), "{}", said(&output));
    assert!(said(&output).contains("--stamps kernel"), "{}", said(&output));
}

#[test]
fn stamps_join_by_id_under_loss_and_reordering() {
    if !as_root() {
        return;
    }
    let link = ["line:2", "--delay", "5ms", "--loss", "10%", "--reorder", "10%"];
    let lab = TestLab::up("driver-loss", &link);
    let (summary, rows) = ping(&lab, &["-c", "500", "-i", "0.001", "-W", "200ms", "icmp://n2"]);
    let packets = &summary["packets"];
    assert!(packets["lost"].as_u64() > Some(20) && packets["reordered"].as_u64() > Some(20));
    let received: Vec<_> = rows.iter().filter(|row| row["state"] == "received").collect();
    let mut far = 0;
    for row in &received {
        let [driver, kernel] = ["rtt_driver_ns", "rtt_kernel_ns"].map(|name| number(row, name));
        assert!(driver <= kernel, "{row}");
        // The timestamp of another reply is about 1 ms away.
        far += usize::from(kernel - driver > 900_000);
    }
    assert!(far * 20 < received.len(), "{far} of {}", received.len());
    assert_eq!(summary["driver"]["unseen"], 0);
}

#[test]
fn interface_without_native_xdp_gives_the_reason() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-lo", &["line:2"]);
    let (summary, _) = ping(&lab, &["-c", "3", "-i", "0.001", "icmp://127.0.0.1"]);
    let why = summary["driver"]["absent"].as_str().unwrap();
    assert!(why.contains("no native XDP on interface lo"), "{why}");
    assert_eq!(summary["metrics"]["rtt_driver_ns"], Value::Null);
    assert!(summary["trust"]["warnings"].to_string().contains("no-driver-timestamps"));
    let fails = |arguments: &[&str]| {
        let output = lab.exec("n1", &[&[DWELL, "ping", "-c", "1"], arguments].concat());
        (output.status.code(), said(&output))
    };
    let driver = ["--stamps", "driver", "icmp://n2", "--interface"];
    let (code, text) = fails(&[&driver[..], &["nowhere"]].concat());
    assert!(code == Some(2) && text.contains("interface nowhere does not exist"), "{text}");
    let (code, text) = fails(&["--interface", "lo", "icmp://n2"]);
    assert!(code == Some(2) && text.contains("--stamps driver"), "{text}");
}

/// Id of the XDP program on the interface of n1 to n2.
fn xdp_program(lab: &TestLab, index: u32) -> Option<u32> {
    netns::within(&lab.netns("n1"), || interface::xdp_program(index)).unwrap().unwrap()
}

/// Index of the interface of n1 to n2.
fn link(lab: &TestLab) -> u32 {
    let all = netns::within(&lab.netns("n1"), interface::all).unwrap().unwrap();
    all.into_iter().find(|found| found.name != "lo" && found.up).expect("a link").index
}

#[test]
fn killed_ping_leaves_no_program() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-kill", &["line:2"]);
    let index = link(&lab);
    let mut child = Command::new(DWELL)
        .args(["lab", "exec", "--lab", &lab.name, "n1", "--", DWELL, "ping", "-q"])
        .args(["--stamps", "driver", "-i", "0.01", "icmp://n2"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the program is attached", || xdp_program(&lab, index).is_some());
    crate::fixture::kill(&mut child);
    until("the program is gone", || xdp_program(&lab, index).is_none());
}

#[test]
fn interface_of_another_xdp_program_is_refused() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("driver-taken", &["line:2"]);
    let index = link(&lab);
    let other = netns::within(&lab.netns("n1"), || {
        Pass::load(Hook::Xdp).unwrap().attach_xdp(index, XdpMode::Native)
    });
    let other = other.unwrap().unwrap();
    let id = xdp_program(&lab, index).unwrap();
    let output = lab.exec("n1", &[DWELL, "ping", "--stamps", "driver", "-c", "1", "icmp://n2"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("XDP program {id}")), "{text}");
    assert_eq!(xdp_program(&lab, index), Some(id), "the other program stays");
    drop(other);
}
