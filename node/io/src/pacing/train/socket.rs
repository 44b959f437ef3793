//! One send call per packet, as most programs do, with a choice of wait modes.

use super::tx_socket::TxSocket;
use super::{Departure, Engine, Numbers, Payloads, TrainProgress, TrainSenderConfig, Unavailable};
use crate::pacing::pacer::WaitMode;

/// A sender with one of the wait modes of [`crate::pacer`]. Without one it sleeps for the gap after
/// each packet, like programs that do not read the clock.
struct SocketSender {
    tx_socket: TxSocket,
    payloads: Payloads,
    wait_mode: Option<WaitMode>,
}

/// Opens a sender, whose packets the kernel timestamps if requested.
///
/// # Errors
/// The socket cannot be opened.
pub(super) fn open(
    config: TrainSenderConfig<'_>,
    wait_mode: Option<WaitMode>,
) -> Result<Box<dyn Engine>, Unavailable> {
    let tx_socket = TxSocket::open(config.target, config.options)?;
    // A sender that sleeps for each gap imitates ordinary programs, which do not cork.
    let tx_socket = if wait_mode.is_some() { tx_socket.with_corking() } else { tx_socket };
    Ok(Box::new(SocketSender { tx_socket, payloads: config.payloads, wait_mode }))
}

impl Engine for SocketSender {
    fn prepare(&mut self, numbers: Numbers) {
        self.payloads.prepare(numbers);
        self.tx_socket.begin(numbers.len());
    }

    fn send(&mut self, mut progress: TrainProgress<'_>, left: &mut [Departure]) {
        let Self { tx_socket, payloads, wait_mode } = self;
        let Some(wait_mode) = *wait_mode else {
            while let Some(n) = progress.next_after_gap() {
                tx_socket.send(n, payloads.at(n), left);
            }
            return;
        };
        while let Some((which, _)) = progress.next_due() {
            tx_socket.prepare_departure(
                wait_mode,
                &progress,
                payloads.span(which.clone()),
                left,
                || {},
            );
            if which.len() == 1 {
                tx_socket.cork(wait_mode, &progress, payloads.at(which.start));
            }
            let Some(which) = progress.next(wait_mode) else { return tx_socket.discard() };
            which.for_each(|n| tx_socket.send(n, payloads.at(n), left));
        }
    }

    fn tx_socket(&mut self) -> &mut TxSocket {
        &mut self.tx_socket
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use dwell_sample::PaceEngine;
    use dwell_units::Nanos;
    use dwell_wire::traffic::Mark;

    use super::*;
    use crate::clock::monotonic;
    use crate::pacing::pacer::sleep_until;
    use crate::pacing::train::TrainSender;
    use crate::sockets::port::{SocketOptions, StampRequest};

    const LEN: usize = 100;
    const PACKETS: usize = 100;
    const TRAINS: usize = 40;

    #[test]
    fn stop_leaves_no_corked_packet_for_next_train() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let options = SocketOptions { stamps: StampRequest::Kernel, ..SocketOptions::default() };
        let config = TrainSenderConfig {
            target: far.local_addr().unwrap(),
            options: &options,
            payloads: Payloads::new(1, LEN, vec![0; LEN]),
            max_packets: PACKETS,
            bypass_qdisc: false,
        };
        let mut sender = TrainSender::open(PaceEngine::Spin, config).unwrap();
        let mut ahead = 0;
        for n in 0..TRAINS {
            sender.prepare(Numbers::new((n * PACKETS) as u64, PACKETS));
            let mut left = vec![Departure::default(); PACKETS];
            // A packet is corked for most of such a gap, and so during most of the stops.
            let start = monotonic() + Nanos::from_millis(2);
            let due: Vec<_> =
                (0..PACKETS as i64).map(|n| start + Nanos::from_micros(13 * n)).collect();
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    sleep_until(start + Nanos::from_micros(17 * n as i64));
                    stop.store(true, Ordering::Relaxed);
                });
                sender.send(TrainProgress::new(&due, &stop), &mut left);
            });
            sender.collect(&mut left, Nanos::from_secs(2));
            for (place, left) in left.iter().enumerate().filter(|(_, left)| left.app.is_some()) {
                let mut came = [0; 4 * LEN];
                let len = far.recv(&mut came).unwrap();
                let seq = Mark::parse(&came[..len]).unwrap().seq;
                assert_eq!((len, seq), (LEN, (n * PACKETS + place) as u64));
                assert!(left.kernel >= left.app, "the timestamp is its own: {left:?}");
                ahead += usize::from(left.ahead);
            }
        }
        far.set_nonblocking(true).unwrap();
        assert!(far.recv(&mut [0; LEN]).is_err(), "a discarded packet arrived");
        assert!(ahead > 0, "no packet was corked");
    }
}
