//! Packets due together leave as one message, which the kernel segments into datagrams
//! (UDP_SEGMENT, udp(7)) just before the driver. No other engine sends packets closer together.

use std::io;
use std::ops::Range;

use dwell_units::Nanos;

use super::packet_tap::PacketTap;
use super::tx_socket::TxSocket;
use super::{
    Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable, outgoing,
};
use crate::clock::realtime;
use crate::host::interface::UDP_SEGMENTATION;
use crate::pacing::pacer::WaitMode;
use crate::sockets::port::StampRequest;
use crate::sys::control::{self, OutgoingControl};
use crate::sys::syscall;

/// Maximum number of datagrams in one message that every kernel accepts (linux/udp.h,
/// UDP_MAX_SEGMENTS).
const MAX_SEGMENTS: usize = 64;

/// Maximum length of such a message in bytes: the longest payload over IPv4.
const MAX_MESSAGE_LEN: usize = 65_507;

/// A sender that sleeps, then spins, and sends packets due together as one message.
struct Gso {
    tx_socket: TxSocket,
    payloads: Payloads,
    packet_tap: Option<PacketTap>,
    numbers: Numbers,
}

/// Opens a sender. The kernel timestamps such a message once. If timestamps are requested, a tap on
/// the outgoing interface takes them, which increases the gaps between packets.
///
/// # Errors
/// The outgoing interface accepts messages without segmentation or does not report it, or
/// timestamps are requested without CAP_NET_RAW.
pub(super) fn open(config: TrainSenderConfig<'_>) -> Result<Box<dyn Engine>, Unavailable> {
    let TrainSenderConfig { target, options, payloads, .. } = config;
    let interface = outgoing(target, options)?;
    let name = &interface.name;
    match interface.send_merging_offloads().as_deref() {
        Some([]) => {}
        Some(_) => {
            return Err(Unavailable::because(format!(
                "{UDP_SEGMENTATION} of {name} is on, so packets would leave merged into one; switch \
                 it off (--switch-offloads, or ethtool -K {name} {UDP_SEGMENTATION} off)"
            )));
        }
        None => {
            return Err(Unavailable::because(format!(
                "{name} does not report whether {UDP_SEGMENTATION} is off"
            )));
        }
    }
    let tx_socket = TxSocket::silent(target, options)?;
    let open_tap = || PacketTap::open(interface.index, tx_socket.local(), target, payloads.flow());
    let packet_tap = (options.stamps != StampRequest::User).then(open_tap).transpose()?;
    Ok(Box::new(Gso { tx_socket, payloads, packet_tap, numbers: Numbers::new(0, 0) }))
}

impl Gso {
    fn hand_over(&mut self, mut rest: Range<usize>, left: &mut [Departure]) {
        let most = (MAX_MESSAGE_LEN / self.payloads.len()).clamp(1, MAX_SEGMENTS);
        let mut failed = 0;
        while !rest.is_empty() {
            let these = rest.start..rest.end.min(rest.start + most);
            let app = realtime();
            match self.send_as_one(these.clone()) {
                Ok(_) => {
                    self.tx_socket.note(these.clone(), app, realtime(), left);
                    rest.start = these.end;
                    failed = 0;
                }
                Err(error) => {
                    if self.tx_socket.should_retry(syscall::errno(&error), failed) {
                        failed += 1;
                    } else {
                        rest.start = these.end;
                        failed = 0;
                    }
                }
            }
        }
    }

    fn send_as_one(&self, which: Range<usize>) -> io::Result<usize> {
        let message = self.payloads.span(which.clone());
        let mut control = OutgoingControl::empty();
        if let (2.., Ok(len)) = (which.len(), u16::try_from(self.payloads.len())) {
            control.segment_into(len);
        }
        let fd = &self.tx_socket.socket.fd;
        control::send(fd, message, None, &mut control, libc::MSG_DONTWAIT)
    }
}

impl Engine for Gso {
    fn prepare(&mut self, numbers: Numbers) {
        self.numbers = numbers;
        self.payloads.prepare(numbers);
        self.tx_socket.begin(numbers.len());
        if let Some(packet_tap) = &mut self.packet_tap {
            packet_tap.begin();
        }
    }

    fn send(&mut self, mut progress: TrainProgress<'_>, left: &mut [Departure]) {
        while let Some((which, _)) = progress.next_due() {
            let memory = self.payloads.span(which);
            self.tx_socket.prepare_departure(WaitMode::SleepSpin, &progress, memory, left, || {});
            let Some(which) = progress.next(WaitMode::SleepSpin) else { return };
            self.hand_over(which, left);
        }
    }

    fn collect(&mut self, left: &mut [Departure], timeout: Nanos) {
        self.tx_socket.collect(left, Nanos::ZERO);
        if let Some(packet_tap) = &mut self.packet_tap {
            packet_tap.collect(self.numbers, left, timeout);
        }
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}
