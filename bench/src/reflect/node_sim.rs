//! Service time that a simulated node keeps with 64 clients at once.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::arena::Arena;
use crate::{Interrupt, Node, Server, finish};

/// Service time of the node.
const SERVICE_TIME: &str = "4ms";
const SERVICE_NS: f64 = 4e6;

/// Clients, and exchanges of each.
const CLIENTS: &str = "64";
const EXCHANGES: &str = "10";

/// Time-out of an exchange, which waits for 63 others.
const EXCHANGE_TIMEOUT: &str = "10s";

const PORT: &str = "7201";

/// Measures the mean time in service; the share by which it differs from the one that was set.
pub(super) fn deviation(arena: &Arena, interrupt: &Interrupt) -> Result<f64> {
    let url = format!("text+udp://{}:{PORT}", arena.lab.address(Node::N2)?);
    let mut node = arena.lab.dwell_on(Node::N2);
    node.args(["node-sim", &url, "--json", "--service-time", SERVICE_TIME]);
    let node = Server::start(node, Some("listening on"))?;
    let mut ping = arena.lab.dwell_on(Node::N1);
    ping.args(["ping", &url, "-q", "--json", "--closed-loop", "-W", EXCHANGE_TIMEOUT]);
    ping.args(["--clients", CLIENTS, "-c", EXCHANGES]);
    let finished = finish(ping, interrupt)?;
    ensure!(finished.status.success(), "dwell ping: {}", finished.status);
    mean_of(&node.stop()?).map(|mean| (mean / SERVICE_NS - 1.0).abs())
}

/// Mean service time in the summary of a node.
fn mean_of(summary: &str) -> Result<f64> {
    let summary: Value = serde_json::from_str(summary).context("dwell node-sim --json")?;
    let mean = summary["metrics"]["service_ns"]["mean"].as_f64();
    mean.with_context(|| format!("no mean of service_ns: {}", summary["metrics"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_is_read_from_the_summary() {
        let text = r#"{"metrics":{"service_ns":{"p50":4000100,"mean":4015000.0}}}"#;
        assert_eq!(mean_of(text).unwrap(), 4_015_000.0);
        assert!(mean_of(r#"{"metrics":{}}"#).unwrap_err().to_string().contains("service_ns"));
    }
}
