//! Requesting timestamps (SO_TIMESTAMPING, Documentation/networking/timestamping.rst).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys::sockopt;
use crate::sys::time::{LONG_LEN, SO_TIMESTAMPING_NEW, SO_TIMESTAMPING_OLD};

/// Flags of linux/net_tstamp.h that libc does not define.
const SOF_TIMESTAMPING_OPT_ID: u32 = 1 << 7;
const SOF_TIMESTAMPING_TX_SCHED: u32 = 1 << 8;
const SOF_TIMESTAMPING_OPT_TSONLY: u32 = 1 << 11;
const SOF_TIMESTAMPING_OPT_TX_SWHW: u32 = 1 << 14;

/// Kernel timestamps to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampRequest {
    /// None: only the program's own clock reads. Does not affect the kernel's fast path.
    #[default]
    User,
    /// The kernel's software timestamps.
    Kernel,
    /// Timestamps of the kernel and of the network card. Asking a card without timestamps costs
    /// 0.25 us per round trip, so ask only if its driver claims to have them.
    Card,
}

/// Kernel timestamps of sent packets to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxStampRequest {
    /// None: only received packets are timestamped.
    None,
    /// At the driver and in the network card.
    #[default]
    Driver,
    /// Before the queueing discipline (TX_SCHED) as well.
    DriverAndQdisc,
}

/// Requests timestamps of received and sent packets; returns their source. It is
/// [`StampRequest::User`] if sockets have no SO_TIMESTAMPING, as under qemu-user. The request takes
/// effect asynchronously, so the first packets may have no timestamps.
pub(crate) fn request(
    fd: &impl AsRawFd,
    stamps: StampRequest,
    tx_stamps: TxStampRequest,
) -> io::Result<StampRequest> {
    match flags(stamps, tx_stamps) {
        0 => Ok(stamps),
        flags => match set(fd, flags) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(StampRequest::User),
            set => set.map(|()| stamps),
        },
    }
}

/// Sets the flags of SO_TIMESTAMPING.
fn set(fd: &impl AsRawFd, flags: u32) -> io::Result<()> {
    // Where C's long has 32 bits, the old option counts seconds until 2038.
    if LONG_LEN < 8 {
        match sockopt::set(fd, libc::SOL_SOCKET, SO_TIMESTAMPING_NEW, flags) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
            set => return set,
        }
    }
    sockopt::set(fd, libc::SOL_SOCKET, SO_TIMESTAMPING_OLD, flags)
}

/// Flags of SO_TIMESTAMPING; 0 without timestamps.
fn flags(stamps: StampRequest, tx_stamps: TxStampRequest) -> u32 {
    if stamps == StampRequest::User {
        return 0;
    }
    let card = stamps == StampRequest::Card;
    let mut flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    if card {
        flags |= libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    }
    if tx_stamps != TxStampRequest::None {
        flags |= libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | SOF_TIMESTAMPING_OPT_ID
            | SOF_TIMESTAMPING_OPT_TSONLY;
        if card {
            // Without OPT_TX_SWHW, a packet that the card will timestamp has no software timestamp
            // (net/core/skbuff.c, __skb_tstamp_tx). With it, such a packet has two messages.
            flags |= libc::SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_OPT_TX_SWHW;
        }
        if tx_stamps == TxStampRequest::DriverAndQdisc {
            flags |= SOF_TIMESTAMPING_TX_SCHED;
        }
    }
    flags
}

/// Restarts the kernel's key counter at 0: it restarts when keys are requested after they were not
/// (net/core/sock.c, sock_set_timestamping).
pub(super) fn restart_key_counter(
    fd: &OwnedFd,
    stamps: StampRequest,
    tx_stamps: TxStampRequest,
) -> io::Result<()> {
    set(fd, 0)?;
    request(fd, stamps, tx_stamps).map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn software_stamps_are_kept_beside_those_of_the_card() {
        let both = flags(StampRequest::Card, TxStampRequest::Driver);
        let tx = libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_HARDWARE;
        assert_eq!(both & tx, tx);
        assert_ne!(both & SOF_TIMESTAMPING_OPT_TX_SWHW, 0);
        let fd = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        request(&fd, StampRequest::Card, TxStampRequest::DriverAndQdisc).unwrap();
        // The option is only for packets with both.
        for (stamps, tx_stamps) in [
            (StampRequest::Kernel, TxStampRequest::DriverAndQdisc),
            (StampRequest::Card, TxStampRequest::None),
            (StampRequest::User, TxStampRequest::Driver),
        ] {
            assert_eq!(flags(stamps, tx_stamps) & SOF_TIMESTAMPING_OPT_TX_SWHW, 0, "{stamps:?}");
        }
    }
}
