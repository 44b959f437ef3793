//! Trials of a relay run, reduced to what a fit needs.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Delay components of one packet in nanoseconds; NaN for a missing one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketDelays {
    /// In the sender, up to its link.
    pub sender_out: f64,
    /// On the link to the relay.
    pub link_in: f64,
    /// In the relay.
    pub node: f64,
    /// On the link to the receiver.
    pub link_out: f64,
    /// In the receiver, from its link.
    pub receiver_in: f64,
    /// In the relaying program, from its receive call to the end of its send call.
    pub program: f64,
}

/// A trial: one packet size, rate and load.
#[derive(Clone, Debug)]
pub struct RelayTrial {
    /// Mode of the relay: `route`, `translate`, `encrypt` or `decrypt`.
    pub mode: String,
    /// Engine that relayed.
    pub engine: String,
    /// Timestamps between which the node delay was measured.
    pub delay_points: (String, String),
    /// UDP payload in bytes.
    pub size_bytes: f64,
    /// Packets per second.
    pub rate_pps: f64,
    /// CPU load on the relay's node that was requested, as a share of each processor, 0 to 1.
    pub load_ratio: f64,
    /// CPU load that was reached; `None` if unknown, or without load.
    pub reached_ratio: Option<f64>,
    /// Rate of each link in bit/s; `None` without a limit.
    pub link_rate_bps: Option<f64>,
    /// Share of a processor that the node may use; `None` without a limit.
    pub quota_ratio: Option<f64>,
    /// Share of a processor that the node used; `None` if unknown.
    pub used_ratio: Option<f64>,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// A random choice of at most `max_packets` received packets.
    packets: Vec<PacketDelays>,
    max_packets: usize,
    offered: usize,
    random: Xoshiro256PlusPlus,
}

impl RelayTrial {
    /// A trial without packets, which keeps at most `max_packets`. The random choice depends on
    /// `seed`.
    pub fn new(mode: &str, max_packets: usize, seed: u64) -> Self {
        Self {
            mode: mode.to_owned(),
            engine: String::new(),
            delay_points: (String::new(), String::new()),
            size_bytes: 0.0,
            rate_pps: 0.0,
            load_ratio: 0.0,
            reached_ratio: None,
            link_rate_bps: None,
            quota_ratio: None,
            used_ratio: None,
            sent: 0,
            received: 0,
            packets: Vec::new(),
            max_packets,
            offered: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// Adds a received packet. Each packet is kept with equal probability (reservoir sampling).
    pub fn push(&mut self, packet: PacketDelays) {
        self.offered += 1;
        if self.packets.len() < self.max_packets {
            self.packets.push(packet);
            return;
        }
        let place = self.random.random_range(0..self.offered);
        if let Some(kept) = self.packets.get_mut(place) {
            *kept = packet;
        }
    }

    /// The kept packets.
    pub fn packets(&self) -> &[PacketDelays] {
        &self.packets
    }

    /// Present values of a component.
    pub(crate) fn values(&self, of: impl Fn(&PacketDelays) -> f64) -> Vec<f64> {
        self.packets.iter().map(of).filter(|value| value.is_finite()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_packets_are_an_even_choice() {
        let mut trial = RelayTrial::new("route", 1_000, 7);
        for i in 0..50_000 {
            let value = f64::from(i);
            let packet = PacketDelays {
                sender_out: f64::NAN,
                link_in: 0.0,
                node: value,
                link_out: 0.0,
                receiver_in: 0.0,
                program: f64::NAN,
            };
            trial.push(packet);
        }
        let kept = trial.values(|packet| packet.node);
        assert_eq!(kept.len(), 1_000);
        let mean = kept.iter().sum::<f64>() / 1_000.0;
        // The standard error of the mean is 456.
        assert!((mean - 25_000.0).abs() < 2_000.0, "{mean}");
        assert!(trial.values(|packet| packet.sender_out).is_empty());
    }
}
