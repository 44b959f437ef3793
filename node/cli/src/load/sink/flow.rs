//! Counters of one flow by its sequence numbers, and the report that an iperf server would send.

use dwell_stats::Jitter;
use dwell_units::{Instant, Nanos, Realtime};
use dwell_wire::iperf2::{ServerReport, Transit};

/// State of a flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) numbers: Numbers,
    /// Number of the flow in observations.
    pub(super) number: u32,
    /// Whether the recorder knows the flow.
    pub(super) announced: bool,
    pub(super) jitter: Jitter,
    pub(super) bytes: u64,
    /// Number and send time of its FIN.
    pub(super) fin: Option<(u64, Instant<Realtime>)>,
    /// Bytes of reports sent to the client.
    pub(super) answered: u64,
    /// Bytes of repeated FINs.
    repeated: u64,
    first: Option<Instant<Realtime>>,
    last: Option<Instant<Realtime>>,
    transit: Transits,
}

impl Flow {
    /// Creates a flow whose numbers start with `base`.
    pub(super) fn new(number: u32, base: u64) -> Self {
        Self {
            numbers: Numbers::from(base),
            number,
            announced: false,
            jitter: Jitter::default(),
            bytes: 0,
            fin: None,
            answered: 0,
            repeated: 0,
            first: None,
            last: None,
            transit: Transits::default(),
        }
    }

    /// Counts a packet. `sent` is the send time on the sender's clock, if known.
    pub(super) fn take(
        &mut self,
        number: u64,
        len: usize,
        arrival: Instant<Realtime>,
        sent: Option<Instant<Realtime>>,
    ) -> Arrival {
        self.bytes += len as u64;
        self.first.get_or_insert(arrival);
        self.last = Some(arrival);
        if let Some(sent) = sent {
            self.jitter.record(arrival - sent);
            self.transit.take(arrival - sent);
        }
        self.numbers.take(number)
    }

    /// Counts a repeated FIN.
    pub(super) fn take_fin_again(&mut self, len: usize) {
        self.repeated += len as u64;
    }

    /// Returns all bytes received, including repeated FINs.
    pub(super) fn received_bytes(&self) -> u64 {
        self.bytes + self.repeated
    }

    /// Returns the report that an iperf server would send.
    pub(super) fn report(&self) -> ServerReport {
        let duration = self.first.zip(self.last).map_or(Nanos::ZERO, |(first, last)| last - first);
        let packets = self.numbers.packets;
        let rate = packets as f64 / duration.as_secs_f64();
        ServerReport {
            bytes: self.bytes,
            duration,
            lost: self.numbers.lost(),
            out_of_order: self.numbers.reordered,
            datagrams: self.numbers.next.saturating_sub(1),
            jitter: Nanos(self.jitter.nanos().unwrap_or(0.0) as i64),
            transit: self.transit.report(),
            rate: if rate.is_finite() { rate.round() as u32 } else { 0 },
        }
    }
}

/// Whether a number was received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    First,
    Duplicate,
}

/// Sequence numbers received. Memory is bounded: a duplicate more than [`Numbers::WINDOW`] numbers
/// late counts as new.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Packets without duplicates.
    pub(super) packets: u64,
    base: u64,
    /// One more than the highest number.
    pub(super) next: u64,
    pub(super) reordered: u64,
    pub(super) duplicate: u64,
    /// Received numbers just below `next`: bit `number % WINDOW`.
    received: [u64; Self::WINDOW as usize / 64],
}

impl Numbers {
    const WINDOW: u64 = 1_024;

    fn from(base: u64) -> Self {
        let received = [0; Self::WINDOW as usize / 64];
        Self { packets: 0, base, next: base, reordered: 0, duplicate: 0, received }
    }

    /// Returns the count of missing numbers.
    pub(super) fn lost(&self) -> u64 {
        (self.next - self.base).saturating_sub(self.packets)
    }

    fn take(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            // Skipped numbers are missing.
            let skipped = (number - self.next).min(Self::WINDOW);
            (number - skipped..number).for_each(|number| self.set(number, false));
            self.next = number.saturating_add(1);
        } else if self.next - number <= Self::WINDOW && self.get(number) {
            self.duplicate += 1;
            return Arrival::Duplicate;
        } else {
            self.reordered += 1;
        }
        self.set(number, true);
        self.packets += 1;
        Arrival::First
    }

    fn get(&self, number: u64) -> bool {
        let bit = number % Self::WINDOW;
        self.received[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, number: u64, received: bool) {
        let bit = number % Self::WINDOW;
        let word = &mut self.received[bit as usize / 64];
        *word = *word & !(1 << (bit % 64)) | u64::from(received) << (bit % 64);
    }
}

/// Running statistics of transit times.
#[derive(Debug, Default)]
struct Transits {
    count: u32,
    min: Nanos,
    max: Nanos,
    sum: Nanos,
    /// Welford's running mean and sum of squares, in microseconds.
    mean: f64,
    squares: f64,
}

impl Transits {
    fn take(&mut self, transit: Nanos) {
        let first = self.count == 0;
        self.count = self.count.saturating_add(1);
        self.min = if first { transit } else { self.min.min(transit) };
        self.max = if first { transit } else { self.max.max(transit) };
        self.sum = Nanos(self.sum.0.saturating_add(transit.0));
        let micros = transit.as_micros_f64();
        let before = micros - self.mean;
        self.mean += before / f64::from(self.count);
        self.squares += before * (micros - self.mean);
    }

    fn report(&self) -> Transit {
        let squares = self.squares as u64;
        Transit { count: self.count, min: self.min, max: self.max, sum: self.sum, squares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_counts_loss_reordering_and_duplicates() {
        let mut flow = Flow::new(0, 0);
        for number in [0, 1, 3, 2, 6, 3, 6, 6] {
            flow.take(number, 20, Instant::from_nanos(number as i64), None);
        }
        let Numbers { packets, reordered, duplicate, .. } = flow.numbers;
        assert_eq!((packets, reordered, duplicate), (5, 1, 3));
        assert_eq!(flow.numbers.lost(), 2);
        assert_eq!(flow.jitter.nanos(), None, "no packet has a send time");
    }

    #[test]
    fn report_equals_that_of_iperf_server() {
        // As in dwell_wire::iperf2: 1, 2, 3, 6, 8, 9, 10, 7 and the FIN 11.
        let mut flow = Flow::new(0, 1);
        for (n, number) in [1, 2, 3, 6, 8, 9, 10, 7, 11].into_iter().enumerate() {
            let sent = Instant::from_nanos(n as i64 * 10_000_000);
            let transit = Nanos::from_micros(10 + 4 * (n as i64 % 2));
            flow.take(number, 300, sent + transit, Some(sent));
        }
        let report = flow.report();
        assert_eq!((report.lost, report.out_of_order, report.datagrams), (2, 1, 11));
        assert_eq!((report.bytes, report.duration), (2_700, Nanos::from_millis(80)));
        let Transit { count, min, max, .. } = report.transit;
        assert_eq!((count, min, max), (9, Nanos::from_micros(10), Nanos::from_micros(14)));
        // Eight differences of 4 us: 4 (1 - (15/16)^8).
        assert_eq!(report.jitter, Nanos(1_613));
    }
}
