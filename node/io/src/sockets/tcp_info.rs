//! TCP_INFO and the options of bulk connections (tcp(7)).

use std::ffi::c_int;
use std::io;
use std::mem;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use dwell_units::Nanos;

pub use crate::sockets::tcp::reset_on_close;
use crate::sys::sockopt::{check, set};

/// Length of the part of `struct tcp_info` (linux/tcp.h) that is read here.
const INFO_LEN: usize = 168;

/// Maximum length of the name of a congestion control (TCP_CA_NAME_MAX).
const NAME_LEN: usize = 16;

/// The state of a connection. Fields that the kernel does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time (RFC 6298).
    pub rtt: Nanos,
    /// Smallest round-trip time of the last minutes.
    pub min_rtt: Option<Nanos>,
    /// Segments retransmitted since the connection began.
    pub retransmitted: u64,
    /// Bytes that the far end acknowledged. The SYN and the FIN count as one byte each.
    pub acked_bytes: u64,
    /// Segments sent but not yet acknowledged.
    pub unacked_segments: u32,
    /// Bytes written but not yet sent.
    pub unsent_bytes: u32,
    /// Segments received that carry only an acknowledgement.
    pub received_acks: Option<u64>,
    /// Segments sent that carry only an acknowledgement.
    pub sent_acks: Option<u64>,
    /// Latest estimate of the rate at which bytes arrive, in bit/s.
    pub delivery_rate_bps: Option<u64>,
}

impl TcpInfo {
    /// Parses the part of a `struct tcp_info` that the kernel wrote.
    fn parse(info: &[u8]) -> Self {
        let u32_at = |at: usize| {
            info.get(at..at + 4).map(|b| u32::from_ne_bytes(b.try_into().expect("4 bytes")))
        };
        let u64_at = |at: usize| {
            info.get(at..at + 8).map(|b| u64::from_ne_bytes(b.try_into().expect("8 bytes")))
        };
        let without_data = |all: usize, with_data: usize| {
            Some(u64::from(u32_at(all)?.wrapping_sub(u32_at(with_data)?)))
        };
        let micros = |us: u32| Nanos::from_micros(us.into());
        Self {
            rtt: micros(u32_at(68).unwrap_or(0)),
            // All ones until there is a sample.
            min_rtt: u32_at(148).filter(|us| *us != u32::MAX).map(micros),
            retransmitted: u32_at(100).unwrap_or(0).into(),
            acked_bytes: u64_at(120).unwrap_or(0),
            unacked_segments: u32_at(24).unwrap_or(0),
            unsent_bytes: u32_at(144).unwrap_or(0),
            received_acks: without_data(140, 152),
            sent_acks: without_data(136, 156),
            delivery_rate_bps: u64_at(160).map(|bytes| bytes.saturating_mul(8)),
        }
    }
}

/// Reads the state of a connection.
pub fn tcp_info(stream: &impl AsRawFd) -> io::Result<TcpInfo> {
    let mut info = [0_u8; INFO_LEN];
    let len = get(stream, libc::TCP_INFO, &mut info)?;
    Ok(TcpInfo::parse(&info[..len]))
}

/// Returns the congestion control of a connection, such as `cubic`.
pub fn congestion_control(stream: &TcpStream) -> io::Result<String> {
    let mut name = [0_u8; NAME_LEN];
    let len = get(stream, libc::TCP_CONGESTION, &mut name)?;
    let name = name[..len].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Limits the unsent data in the socket, so that a connection ends soon after the last write
/// (TCP_NOTSENT_LOWAT), and the time until a vanished peer is noticed (TCP_USER_TIMEOUT). The
/// congestion window is not limited.
pub fn limit_bulk(stream: &TcpStream, unsent_bytes: u32, timeout: Nanos) -> io::Result<()> {
    let millis = u32::try_from(timeout.0 / 1_000_000).unwrap_or(u32::MAX);
    set(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, unsent_bytes)?;
    set(stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
}

/// Reads a TCP option into `value`; returns the length that the kernel wrote.
fn get(stream: &impl AsRawFd, name: c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, which has that many, and their
    // number to `len`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check(result)?;
    Ok((len as usize).min(mem::size_of_val(value)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn acknowledged_bytes_and_rtt_of_a_connection_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let before = tcp_info(&near).unwrap();
        near.write_all(&[7; 50_000]).unwrap();
        far.read_exact(&mut [0; 50_000]).unwrap();
        // The last acknowledgment may be delayed by 40 ms (Linux, TCP_DELACK_MIN).
        let info = loop {
            let info = tcp_info(&near).unwrap();
            if info.unacked_segments == 0 && info.unsent_bytes == 0 {
                break info;
            }
            std::thread::yield_now();
        };
        assert_eq!(info.acked_bytes - before.acked_bytes, 50_000);
        assert!(info.rtt > Nanos::ZERO && info.min_rtt.unwrap() <= info.rtt, "{info:?}");
        // The handshake, and an acknowledgement of the data.
        assert!(info.received_acks >= Some(2) && info.sent_acks >= Some(1), "{info:?}");
        assert!(!congestion_control(&near).unwrap().is_empty());
    }

    #[test]
    fn tcp_info_of_older_kernel_lacks_newer_fields() {
        let mut info = [0_u8; 104];
        info[68..72].copy_from_slice(&250_u32.to_ne_bytes());
        let parsed = TcpInfo::parse(&info);
        assert_eq!(parsed.rtt, Nanos::from_micros(250));
        assert_eq!((parsed.min_rtt, parsed.delivery_rate_bps), (None, None));
        assert_eq!((parsed.received_acks, parsed.sent_acks), (None, None));
    }
}
