//! Settings of a simulated node, and those that reproduce the tables of Chung 2021.

use dwell_units::{Nanos, TimeRange};

/// Clock tick in the tables of Chung 2021, whose latencies are multiples of it.
const CHUNG_TICK: Nanos = Nanos::from_micros(46_350);

/// Default time-out of an Arduino stream (`Stream::setTimeout`).
const ARDUINO_READ_TIMEOUT: Nanos = Nanos::from_millis(1_000);

/// Time that the console of Chung 2021 takes to print a line (section 2.2).
const CHUNG_PRINT_DELAY: TimeRange = TimeRange::millis(20, 40);

/// Number of sockets of the W5500.
const W5500_SOCKETS: usize = 8;

/// Share of latencies near 2 s in table 1 of Chung 2021.
const CHUNG_REPEATED_READS: f64 = 4.0 / 13.0;

/// Maximum number of sockets of a node.
pub const MAX_SOCKETS: usize = 256;

/// Settings of a simulated node. The default is a clean node: exact clock, no delay.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSettings {
    /// Tick of the node's clock; 0 is an exact clock.
    pub clock_tick: Nanos,
    /// Time-out of a read from a stream: the read ends this long after its last byte; 0 disables it.
    pub read_timeout: Nanos,
    /// Share of reads that time out twice, if the node waits in the read when the request arrives:
    /// 0 to 1.
    pub repeated_reads: f64,
    /// Time until the main loop comes around to a request.
    pub loop_time: TimeRange,
    /// Time to print a line on the console.
    pub print_delay: TimeRange,
    /// Time for which a request occupies the node; other requests wait for its end.
    pub service_time: TimeRange,
    /// Maximum number of connections at the same time; others are refused.
    pub sockets: usize,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            clock_tick: Nanos::ZERO,
            read_timeout: Nanos::ZERO,
            repeated_reads: 0.0,
            loop_time: TimeRange::ZERO,
            print_delay: TimeRange::ZERO,
            service_time: TimeRange::ZERO,
            sockets: MAX_SOCKETS,
        }
    }
}

impl NodeSettings {
    /// The node of Chung 2021 with one client: table 1 with a stream, table 2 with datagrams. The
    /// loop time is fitted to table 2.
    pub fn chung_2021_best() -> Self {
        Self {
            clock_tick: CHUNG_TICK,
            read_timeout: ARDUINO_READ_TIMEOUT,
            repeated_reads: CHUNG_REPEATED_READS,
            loop_time: TimeRange::millis(280, 640),
            print_delay: CHUNG_PRINT_DELAY,
            service_time: TimeRange::ZERO,
            sockets: W5500_SOCKETS,
        }
    }

    /// The same node with several clients: table 3 with streams, table 4 with datagrams. The loop
    /// time is fitted to both tables; the paper does not give the number of clients.
    pub fn chung_2021_worst() -> Self {
        Self { loop_time: TimeRange::millis(500, 870), ..Self::chung_2021_best() }
    }
}
