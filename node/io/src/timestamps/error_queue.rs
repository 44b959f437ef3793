//! The error queue of a socket (MSG_ERRQUEUE, recv(2)): timestamps of sent packets, and ICMP errors
//! about them.

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use dwell_sample::TxStamp;

use crate::sys::control::{ControlBuffer, Extended, ReceivedControl, receive};

/// Values of `sock_extended_err.ee_origin` (linux/errqueue.h).
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
const ORIGIN_TIMESTAMPING: u8 = 4;

/// An entry of a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A timestamp of a packet that this socket sent.
    TxStamp {
        /// Key of the packet, as in [`crate::port::Sent::key`].
        key: u32,
        /// Point and time.
        stamp: TxStamp,
    },
    /// An ICMP or local error about a packet that this socket sent.
    Error {
        /// Corresponding errno (ECONNREFUSED, EHOSTUNREACH, EMSGSIZE ...).
        errno: i32,
        /// Whether it came by ICMP; otherwise the local kernel reported it.
        icmp: bool,
        /// ICMP type and code, if it came by ICMP.
        kind: (u8, u8),
        /// Sender of the error, if known.
        from: Option<IpAddr>,
    },
}

/// Reads up to `limit` entries of the error queue.
pub(crate) fn notices(
    fd: &OwnedFd,
    control: &mut ControlBuffer,
    limit: usize,
    each: &mut dyn FnMut(Notice),
) {
    for _ in 0..limit {
        // The packet's bytes are not needed; OPT_TSONLY leaves them out anyway.
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let Ok(came) = receive(fd, &mut [], control, None, flags, false) else { return };
        let Some(error) = came.control_data.error else { continue };
        match error.origin {
            ORIGIN_TIMESTAMPING => stamps(&came.control_data, &error, each),
            origin => each(Notice::Error {
                errno: i32::try_from(error.errno).unwrap_or(libc::EIO),
                icmp: matches!(origin, ORIGIN_ICMP | ORIGIN_ICMP6),
                kind: error.kind,
                from: error.offender,
            }),
        }
    }
}

/// A queue entry carries a software timestamp, a hardware timestamp, or both. A packet that both the
/// kernel and the card timestamp has an entry for each, with one key. `ee_info` says where
/// the software timestamp was taken (SCM_TSTAMP_SND 0, SCHED 1, ACK 2), `ee_data` is the OPT_ID
/// key.
fn stamps(control_data: &ReceivedControl, error: &Extended, each: &mut dyn FnMut(Notice)) {
    let software = match error.info {
        0 => TxStamp::Kernel,
        1 => TxStamp::Sched,
        _ => return,
    };
    let stamps = [control_data.kernel.map(software), control_data.hw.map(TxStamp::Hw)];
    for stamp in stamps.into_iter().flatten() {
        each(Notice::TxStamp { key: error.data, stamp });
    }
}

#[cfg(test)]
mod tests {
    use dwell_units::Instant;

    use super::*;

    #[test]
    fn both_entries_of_a_key_keep_their_own_stamp() {
        let (software, hardware) = (Instant::from_nanos(1_000), Instant::from_nanos(7));
        let mut found = Vec::new();
        let mut entry = |kernel, hw, info| {
            let control_data = ReceivedControl { kernel, hw, ..ReceivedControl::default() };
            let error = Extended {
                errno: 42,
                origin: ORIGIN_TIMESTAMPING,
                kind: (0, 0),
                info,
                data: 9,
                offender: None,
            };
            stamps(&control_data, &error, &mut |notice| found.push(notice));
        };
        entry(Some(software), None, 0);
        entry(None, Some(hardware), 0);
        let stamp = |stamp| Notice::TxStamp { key: 9, stamp };
        let both = [stamp(TxStamp::Kernel(software)), stamp(TxStamp::Hw(hardware))];
        assert_eq!(found, both);
    }
}
