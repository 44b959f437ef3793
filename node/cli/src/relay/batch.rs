//! Datagram relay that receives and sends in batches. Packets of one batch share clock readings:
//! `rx_app` is taken after the batch was received, `tx_app` when it is handed to the kernel.

use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use dwell_engine::relay::HEADROOM;
use dwell_engine::relay::flows::FlowId;
use dwell_io::batch::{Batch, Parcel, Sending};
use dwell_io::port::SendError;
use dwell_protocol::HoldAt;

use super::counts::FinalState;
use super::setup::FlowDirection;
use super::sockets::Socket;
use super::udp::{IncomingPacket, Relay};

/// Maximum number of packets per batch.
const MAX_BATCH: usize = 64;

/// Batches received from one socket before the other sockets are polled.
const BATCHES_PER_TURN: usize = 4;

/// Relays until stopped.
pub(super) fn run(relay: Relay<'_>, stop: &AtomicBool) -> FinalState {
    let mut batches = Batches {
        batch: Batch::new(MAX_BATCH, HEADROOM),
        packets: Vec::with_capacity(MAX_BATCH),
        parcels: Vec::with_capacity(MAX_BATCH),
        outcomes: Vec::with_capacity(MAX_BATCH),
    };
    relay.run_by(BATCHES_PER_TURN, &mut |relay, socket| batches.take(relay, socket), stop)
}

/// Buffers of the batched relay, reused for every batch.
struct Batches {
    batch: Batch,
    /// Packets to send: index in the batch, description, and range of the payload.
    packets: Vec<(usize, IncomingPacket, Range<usize>)>,
    parcels: Vec<Parcel>,
    outcomes: Vec<(Result<Option<u32>, SendError>, Sending)>,
}

impl Batches {
    /// Receives a batch from a socket and sends it; returns whether more may be waiting.
    fn take(&mut self, relay: &mut Relay<'_>, socket: Socket) -> io::Result<bool> {
        self.packets.clear();
        let taken = match socket {
            Socket::Listener | Socket::Own(_) => self.take_forward(relay, socket)?,
            Socket::Out(flow) => self.take_backward(relay, flow)?,
        };
        if taken == 0 {
            return Ok(false);
        }
        if socket == Socket::Listener {
            // Packets of one flow leave in one call, in order.
            self.packets.sort_unstable_by_key(|(n, packet, _)| (packet.flow.to_u64(), *n));
        }
        let mut packets = std::mem::take(&mut self.packets);
        for flow_packets in
            packets.chunk_by_mut(|(_, one, _), (_, other, _)| one.flow == other.flow)
        {
            self.send(relay, flow_packets);
        }
        self.packets = packets;
        Ok(true)
    }

    fn take_forward(&mut self, relay: &mut Relay<'_>, socket: Socket) -> io::Result<usize> {
        // The flow was removed since the socket was polled.
        let Some(near) = relay.socket(socket) else { return Ok(0) };
        let taken = self.batch.receive(near)?;
        if taken > 0 {
            relay.spin(HoldAt::Program);
        }
        for n in 0..taken {
            let Some(near) = relay.socket(socket) else { break };
            let (datagram, buffer) = self.batch.datagram(n, near);
            let (rx, len) = (datagram.rx_or_now(), datagram.len);
            let client = datagram.from.and_then(|peer| relay.client(peer, buffer, len));
            let transformed = client.and_then(|(flow, opened)| {
                relay.transform(FlowDirection::Forward, flow, rx, buffer, len, opened)
            });
            self.packets.extend(transformed.map(|(packet, at)| (n, packet, at)));
        }
        Ok(taken)
    }

    fn take_backward(&mut self, relay: &mut Relay<'_>, id: FlowId) -> io::Result<usize> {
        // The flow was removed since the socket was polled.
        let Some(flow) = relay.flows.find(id) else { return Ok(0) };
        let taken = self.batch.receive(&flow.out)?;
        if taken > 0 {
            relay.spin(HoldAt::Program);
        }
        for n in 0..taken {
            let Some(flow) = relay.flows.find(id) else { break };
            let (datagram, buffer) = self.batch.datagram(n, &flow.out);
            let transformed = relay.transform(
                FlowDirection::Backward,
                id,
                datagram.rx_or_now(),
                buffer,
                datagram.len,
                None,
            );
            self.packets.extend(transformed.map(|(packet, at)| (n, packet, at)));
        }
        Ok(taken)
    }

    /// Sends packets of one flow and direction.
    fn send(
        &mut self,
        relay: &mut Relay<'_>,
        packets: &mut [(usize, IncomingPacket, Range<usize>)],
    ) {
        let Some((_, IncomingPacket { direction, flow, .. }, _)) = packets.first() else { return };
        let (direction, id) = (*direction, *flow);
        for (n, packet, at) in packets.iter() {
            relay.fill_telemetry(packet, &mut self.batch.buffer(*n)[at.clone()]);
        }
        // The flow was evicted by a later packet of the same batch.
        let Some(flow) = relay.flows.find(id) else {
            packets.iter().for_each(|(_, packet, _)| relay.not_sent(packet, SendError::Closed));
            return;
        };
        let to = (direction == FlowDirection::Backward && flow.own.is_none()).then_some(flow.peer);
        self.parcels.clear();
        self.parcels.extend(packets.iter().map(|(n, _, at)| Parcel { n: *n, at: at.clone(), to }));
        let through = match direction {
            FlowDirection::Forward => &mut flow.out,
            FlowDirection::Backward => flow.own.as_mut().unwrap_or(&mut relay.listener),
        };
        self.outcomes.clear();
        let outcomes = &mut self.outcomes;
        self.batch.send(through, &self.parcels, &mut |_, outcome, when| {
            outcomes.push((outcome, when));
        });
        for ((_, packet, _), (outcome, when)) in packets.iter_mut().zip(&self.outcomes) {
            match outcome {
                Ok(key) => relay.sent(packet, *key, when.before, when.after),
                Err(error) => relay.not_sent(packet, *error),
            }
        }
    }
}
