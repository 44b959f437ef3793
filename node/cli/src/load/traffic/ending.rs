//! The end of iperf flows: each says that it is over until the server's report has come.

use std::sync::atomic::{AtomicBool, Ordering};

use dwell_io::clock::{monotonic, realtime};
use dwell_io::port::{Port, Wait};
use dwell_units::Nanos;
use dwell_wire::iperf2::ServerReport;

use super::drive::Flow;
use super::payload::Payload;
use crate::pace;

/// Times that the end of a flow is said, as the real client does.
const TRIES: usize = 10;

/// After a stop, nobody waits for long.
const TRIES_STOPPED: usize = 1;

/// How long a report is waited for.
const PATIENCE: Nanos = Nanos::from_millis(250);

/// Ends all flows, and fills in the report of each that came.
pub(super) fn end(
    flows: &mut [Flow],
    payload: &mut Payload,
    stop: &AtomicBool,
    reports: &mut [Option<ServerReport>],
) {
    let mut buffer = [0; 2_048];
    for tried in 0..TRIES {
        let missing = reports.iter().any(Option::is_none);
        if !missing || tried >= TRIES_STOPPED && stop.load(Ordering::Relaxed) {
            break;
        }
        for (flow, _) in flows.iter_mut().zip(&*reports).filter(|(_, report)| report.is_none()) {
            // One that is not sent is sent again.
            let _ = flow.port.send(payload.fin(flow.packets, realtime()));
        }
        let until = monotonic() + PATIENCE;
        while reports.iter().any(Option::is_none) && monotonic() < until {
            for (flow, report) in flows.iter_mut().zip(&mut *reports) {
                while report.is_none()
                    && let Ok(Some(arrival)) = flow.port.receive(&mut buffer, Wait::No)
                {
                    *report = ServerReport::parse(&buffer[..arrival.len]).ok();
                }
            }
            pace::sleep_until(monotonic() + Nanos::from_millis(1));
        }
    }
}
