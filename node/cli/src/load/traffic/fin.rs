//! End of iperf flows: a FIN is repeated until the server has reported.

use std::sync::atomic::{AtomicBool, Ordering};

use dwell_io::clock::{monotonic, realtime};
use dwell_io::port::{Port, Wait};
use dwell_units::Nanos;
use dwell_wire::iperf2::ServerReport;

use super::drive::Flow;
use super::payload::Payload;
use dwell_io::pacer;

/// Number of FINs per flow, as in iperf2.
const MAX_FINS: usize = 10;

/// Number of FINs after a stop: at most one second.
const MAX_FINS_AFTER_STOP: usize = 4;

/// Time-out for a report per FIN.
const REPORT_TIMEOUT: Nanos = Nanos::from_millis(250);

/// How flows end.
#[derive(Debug)]
pub(super) enum Ending {
    /// Without a FIN.
    NoFin,
    /// With one FIN and no report.
    OneFin,
    /// With FINs until the server has reported; the report of each flow.
    Reported(Vec<Option<ServerReport>>),
}

impl Ending {
    /// Ends all flows.
    pub(super) fn of(&mut self, flows: &mut [Flow], payload: &mut Payload, stop: &AtomicBool) {
        match self {
            Self::NoFin => {}
            Self::OneFin => flows.iter_mut().for_each(|flow| send_fin(flow, payload)),
            Self::Reported(reports) => wait_for_all(flows, payload, stop, reports),
        }
    }

    /// Returns the report of each flow; empty if none was expected.
    pub(super) fn reports(self) -> Vec<Option<ServerReport>> {
        match self {
            Self::NoFin | Self::OneFin => Vec::new(),
            Self::Reported(reports) => reports,
        }
    }
}

/// Sends a FIN; a failure is like a loss on the network.
fn send_fin(flow: &mut Flow, payload: &mut Payload) {
    let _ = flow.port.send(payload.fin(flow.packets, realtime()));
}

/// Repeats the FIN of each flow until its report has arrived.
fn wait_for_all(
    flows: &mut [Flow],
    payload: &mut Payload,
    stop: &AtomicBool,
    reports: &mut [Option<ServerReport>],
) {
    let mut buffer = [0; 2_048];
    for tried in 0..MAX_FINS {
        let missing = reports.iter().any(Option::is_none);
        if !missing || tried >= MAX_FINS_AFTER_STOP && stop.load(Ordering::Relaxed) {
            break;
        }
        for (flow, _) in flows.iter_mut().zip(&*reports).filter(|(_, report)| report.is_none()) {
            send_fin(flow, payload);
        }
        let until = monotonic() + REPORT_TIMEOUT;
        loop {
            // Checked before receiving, so that everything in time is read.
            let over = monotonic() >= until;
            for (flow, report) in flows.iter_mut().zip(&mut *reports) {
                while report.is_none()
                    && let Ok(Some(arrival)) = flow.port.receive(&mut buffer, Wait::No)
                {
                    *report = ServerReport::parse(&buffer[..arrival.len]).ok();
                }
            }
            if over || !reports.iter().any(Option::is_none) {
                break;
            }
            pacer::sleep_until(monotonic() + Nanos::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use dwell_protocol::TrafficJob;
    use dwell_record::TrustWarning;

    use super::super::send;
    use super::*;

    /// Returns the ids in the iperf headers, the FIN's being negative, and the warnings.
    fn ids(job: &str) -> (Vec<i32>, Vec<TrustWarning>) {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let url = format!("udp://{}", silent.local_addr().unwrap());
        let job: TrafficJob = serde_json::from_str(&job.replace("URL", &url)).unwrap();
        let loaded = send(&job, None, &AtomicBool::new(false), &mut |_| {}).unwrap();
        silent.set_nonblocking(true).unwrap();
        let mut buffer = [0; 2_048];
        let mut ids = Vec::new();
        while silent.recv(&mut buffer).is_ok() {
            ids.push(i32::from_be_bytes(buffer[..4].try_into().unwrap()));
        }
        (ids, loaded.summary.trust.warnings)
    }

    #[test]
    fn unreported_flow_sends_one_fin() {
        let job = r#"{"url": "URL", "rate": "1kpps", "unreported": true,
            "parameters": {"count": 3, "size": "100B", "header": "iperf"}}"#;
        let (ids, warnings) = ids(job);
        let (end, packets) = ids.split_last().unwrap();
        assert!(*end < 0 && !packets.is_empty() && packets.iter().all(|id| *id > 0), "{ids:?}");
        assert!(warnings.iter().all(|warning| warning.code != "server-silent"), "{warnings:?}");
    }
}
