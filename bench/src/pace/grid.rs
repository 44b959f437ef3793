//! Grid of sizes and rates of Mok 2015 (table 1), and the schedule that follows from them.

use serde::Serialize;

/// Headers of IPv4 and UDP, in bytes.
const HEADERS: u32 = 28;
/// Ethernet header, in bytes.
const ETHERNET: u32 = 14;

/// Minimum duration of a stream in picoseconds. It exceeds the peers' timers but is short enough
/// that most fast streams see no stall, which would lower the rate of senders that do not catch up.
const MIN_DURATION_PS: u64 = 20_000_000_000;
/// Minimum packets of a stream, as in the trains of Mok 2015.
const MIN_PACKETS: u64 = 50;

const SIZES: [u32; 3] = [200, 576, 1_500];
const MBITS: [u32; 5] = [1, 5, 10, 50, 100];

/// Packets of one size at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Cell {
    /// The rate in Mbit/s.
    pub(super) mbits: u32,
    /// Bytes of the IP packet.
    pub(super) ip_size: u32,
    /// Whether the rate counts Ethernet frames, not IP packets.
    pub(super) of_frames: bool,
}

impl Cell {
    /// The fastest rate of Mok 2015, possible only with the largest packets.
    pub(super) const FASTEST: Self = Self { mbits: 1_000, ip_size: 1_500, of_frames: true };

    /// Returns all cells in send order.
    pub(super) fn all() -> Vec<Self> {
        let cell = |mbits, ip_size| Self { mbits, ip_size, of_frames: false };
        let mut cells: Vec<Self> =
            MBITS.iter().flat_map(|mbits| SIZES.map(|size| cell(*mbits, size))).collect();
        cells.push(Self::FASTEST);
        cells
    }

    /// Returns the name in tables and goals.
    pub(super) fn name(self) -> String {
        match self.of_frames {
            true => format!("{} B frames, {} Mbit/s", self.ip_size + ETHERNET, self.mbits),
            false => format!("{} B, {} Mbit/s", self.ip_size, self.mbits),
        }
    }

    /// Bytes of UDP payload.
    pub(super) const fn payload(self) -> u32 {
        self.ip_size - HEADERS
    }

    /// Bytes of the Ethernet frame without its check sequence.
    pub(super) const fn frame(self) -> u32 {
        self.ip_size + ETHERNET
    }

    /// Returns the gap in picoseconds, a whole number for all cells.
    pub(super) const fn gap_ps(self) -> u64 {
        let counted = if self.of_frames { self.frame() } else { self.ip_size };
        counted as u64 * 8 * 1_000_000 / self.mbits as u64
    }

    /// Returns the gap in nanoseconds.
    pub(super) fn gap_ns(self) -> f64 {
        self.gap_ps() as f64 / 1e3
    }

    /// Packets per second.
    pub(super) fn packets_per_second(self) -> f64 {
        1e12 / self.gap_ps() as f64
    }

    /// Returns the rate in bits of UDP payload per second, as iperf counts.
    pub(super) fn payload_bits_per_second(self) -> u64 {
        (f64::from(self.payload() * 8) * self.packets_per_second()).round() as u64
    }

    /// Returns the duration of the stream in picoseconds.
    pub(super) fn duration_ps(self) -> u64 {
        self.count() * self.gap_ps()
    }

    /// Returns the number of packets.
    pub(super) fn count(self) -> u64 {
        MIN_DURATION_PS.div_ceil(self.gap_ps()).max(MIN_PACKETS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_follows_counted_size() {
        let cell = Cell { mbits: 100, ip_size: 576, of_frames: false };
        assert_eq!((cell.gap_ps(), cell.payload(), cell.count()), (46_080_000, 548, 435));
        assert_eq!(Cell::FASTEST.gap_ps(), 12_112_000);
        assert_eq!(Cell::FASTEST.name(), "1514 B frames, 1000 Mbit/s");
    }

    #[test]
    fn every_gap_is_a_whole_number_of_picoseconds() {
        for cell in Cell::all() {
            let counted = u64::from(if cell.of_frames { cell.frame() } else { cell.ip_size });
            let bits = cell.gap_ps() * u64::from(cell.mbits);
            assert_eq!(bits, counted * 8_000_000, "{}", cell.name());
        }
    }

    #[test]
    fn slow_streams_have_at_least_50_packets() {
        let cell = Cell { mbits: 1, ip_size: 1_500, of_frames: false };
        assert_eq!(cell.count(), 50);
    }
}
