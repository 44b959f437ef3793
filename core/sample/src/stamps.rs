//! Timestamps of a packet, and their sources.

use dwell_units::{Card, Instant, Realtime};

dwell_units::named! {
    /// Source of a timestamp, from the farthest to the closest to the wire. A result always names
    /// its source.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum TimestampSource {
        /// Read by the program.
        #[default]
        User = "user",
        /// The kernel's software timestamp: at the driver when sending, on entry to the stack when
        /// receiving.
        KernelSw = "kernel-sw",
        /// An eBPF program in the driver (XDP); receiving only.
        Driver = "driver",
        /// The network card.
        Hw = "hw",
    }
}

/// Point of a kernel TX timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxPoint {
    /// Before the qdisc (`tx_sched`).
    Sched,
    /// After it, at the driver (`tx_kernel`).
    Kernel,
    /// In the network card (`tx_hw`).
    Hw,
}

/// A kernel TX timestamp of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxStamp {
    /// `tx_sched`
    Sched(Instant<Realtime>),
    /// `tx_kernel`
    Kernel(Instant<Realtime>),
    /// `tx_hw`
    Hw(Instant<Card>),
}

impl TxStamp {
    /// Point of the timestamp.
    pub const fn point(self) -> TxPoint {
        match self {
            Self::Sched(_) => TxPoint::Sched,
            Self::Kernel(_) => TxPoint::Kernel,
            Self::Hw(_) => TxPoint::Hw,
        }
    }
}

/// Timestamps of a sent packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxStamps {
    /// `tx_app`: read by the program directly before the send call.
    pub app: Instant<Realtime>,
    /// `tx_sched`, if requested and delivered.
    pub sched: Option<Instant<Realtime>>,
    /// `tx_tcx`, if requested because the kernel delivers no `tx_kernel` on this path.
    pub tcx: Option<Instant<Realtime>>,
    /// `tx_kernel`, if delivered.
    pub kernel: Option<Instant<Realtime>>,
    /// `tx_hw`, if the card delivered one.
    pub hw: Option<Instant<Card>>,
}

/// Timestamps of a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxStamps {
    /// `rx_hw`, if the card delivered one.
    pub hw: Option<Instant<Card>>,
    /// `rx_driver`, if an XDP program in the driver timestamped the reply.
    pub driver: Option<Instant<Realtime>>,
    /// `rx_kernel`, if delivered.
    pub kernel: Option<Instant<Realtime>>,
    /// `rx_app`: read by the program directly after the receive call.
    pub app: Instant<Realtime>,
}
