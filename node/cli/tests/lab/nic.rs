//! Packets dropped by network interfaces during a measurement are in the result.

use serde_json::{Value, json};

use crate::fixture::{DWELL, Running, TestLab, as_root, said};

#[test]
fn interface_drops_are_reported_and_zero_without_drops() {
    if !as_root() {
        return;
    }
    let lab = TestLab::up("nic", &["line:2"]);
    let reflector = Running::start(&lab, "n2", "listening", &["reflect", "udp://0.0.0.0:7001"]);
    // A veth drops packets longer than the MTU of its peer, and counts them as not sent.
    let shorter = lab.exec("n2", &["ip", "link", "set", "dev", "n1", "mtu", "600"]);
    assert!(shorter.status.success(), "{}", said(&shorter));
    let ping = |size: &str| -> Value {
        let target = "udp://198.19.0.2:7001";
        let options = ["-c", "20", "-i", "5ms", "-w", "1s", "-s", size, "--json"];
        let output = lab.exec("n1", &[&[DWELL, "ping", target], &options[..]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)))
    };
    let warned = |summary: &Value| {
        let warnings = summary["trust"]["warnings"].as_array().unwrap();
        let text = "the network interface n2 dropped packets";
        warnings.iter().any(|warning| warning["text"].as_str().unwrap().starts_with(text))
    };

    let short = ping("200");
    assert_eq!(short["packets"]["received"], 20, "{short:#}");
    let nothing = json!([{"interface": "n2", "rx_dropped": 0, "tx_dropped": 0, "rx_missed": 0}]);
    assert_eq!(short["trust"]["nic_dropped"], nothing);
    assert!(!warned(&short));

    let long = ping("1000");
    assert_eq!(long["packets"]["received"], 0, "{long:#}");
    let nics = long["trust"]["nic_dropped"].as_array().unwrap();
    assert_eq!((nics.len(), &nics[0]["interface"]), (1, &json!("n2")));
    assert!(nics[0]["tx_dropped"].as_u64() >= Some(20), "{nics:?}");
    assert!(warned(&long), "{long:#}");
    reflector.end();
}
