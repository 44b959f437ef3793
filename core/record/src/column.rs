//! Numeric columns of a sample, with their names in every format: CSV, JSON lines, Parquet.

use dwell_sample::Point;

/// A numeric column, in nanoseconds unless its name states another unit. A data set omits columns
/// without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Column {
    /// See [`dwell_stats::Metric::Rtt`].
    Rtt,
    /// See [`dwell_stats::Metric::RttIntended`].
    RttIntended,
    /// See [`dwell_stats::Metric::RttKernel`].
    RttKernel,
    /// See [`dwell_stats::Metric::RttHw`].
    RttHw,
    /// See [`dwell_stats::Metric::ScheduleError`].
    ScheduleError,
    /// See [`dwell_stats::Metric::Residence`].
    Residence,
    /// See [`dwell_stats::Metric::OneWayForward`].
    OneWayForward,
    /// See [`dwell_stats::Metric::OneWayBackward`].
    OneWayBackward,
    /// Scheduled send time. This and the following timestamps are nanoseconds since the epoch of
    /// CLOCK_REALTIME unless stated otherwise.
    Intended,
    /// `tx_app`
    TxApp,
    /// `tx_sched`
    TxSched,
    /// `tx_kernel`
    TxKernel,
    /// `tx_hw`, on the network card's clock.
    TxHw,
    /// T2, on the far end's clock.
    T2,
    /// T3, on the far end's clock.
    T3,
    /// `rx_hw`, on the network card's clock.
    RxHw,
    /// `rx_kernel`
    RxKernel,
    /// `rx_app`
    RxApp,
    /// T2 - T1 across two clocks: a delay plus an unknown offset. Only differences between two such
    /// values are meaningful. (Imported data.)
    ForwardPlusOffset,
    /// T4 - T3 across two clocks: a delay minus the same offset. (Imported data.)
    BackwardMinusOffset,
    /// Timestamp of the packet in a separate capture, on the capturing machine's clock. (Imported
    /// captures.)
    Capture,
    /// Time since the previous packet of the same flow or train, on the clock of its timestamps.
    /// (Paced packets and imported data.)
    Gap,
    /// |gap - scheduled gap| of a paced packet.
    GapError,
    /// Packet size in bytes, as counted by its source. (Imported data.)
    SizeBytes,
    /// One-way packets: the sender's `tx_app` to the receiver's `rx_app`. In these rows `tx_*` are
    /// timestamps of the sender and `rx_*` of the receiver.
    EndToEnd,
    /// See [`dwell_stats::Leg::SenderOut`].
    SenderOut,
    /// See [`dwell_stats::Leg::LinkIn`].
    LinkIn,
    /// See [`dwell_stats::DelayComponent::NodeDelay`]; likewise for the following components.
    NodeDelay,
    /// See [`dwell_stats::DelayComponent::NodeDelayNetfilter`].
    NodeDelayNetfilter,
    /// See [`dwell_stats::DelayComponent::NodeDelayDriver`].
    NodeDelayDriver,
    /// See [`dwell_stats::DelayComponent::QueueingIn`].
    QueueingIn,
    /// See [`dwell_stats::DelayComponent::Processing`].
    Processing,
    /// See [`dwell_stats::DelayComponent::ProcessingWithSend`].
    ProcessingWithSend,
    /// See [`dwell_stats::DelayComponent::QueueingOut`].
    QueueingOut,
    /// See [`dwell_stats::DelayComponent::Qdisc`].
    Qdisc,
    /// See [`dwell_stats::Leg::LinkOut`].
    LinkOut,
    /// See [`dwell_stats::Leg::LinkDelay`].
    LinkDelay,
    /// See [`dwell_stats::Leg::ReceiverIn`].
    ReceiverIn,
    /// Timestamp at [`Point::RxDriver`] of the relaying node; likewise for the following points.
    NodeRxDriver,
    /// See [`Point::RxKernel`].
    NodeRxKernel,
    /// See [`Point::RxTcx`].
    NodeRxTcx,
    /// See [`Point::PreRouting`].
    NodePreRouting,
    /// See [`Point::RxApp`].
    NodeRxApp,
    /// See [`Point::TxApp`].
    NodeTxApp,
    /// See [`Point::PostRouting`].
    NodePostRouting,
    /// See [`Point::TxSched`].
    NodeTxSched,
    /// See [`Point::TxTcx`].
    NodeTxTcx,
    /// See [`Point::TxKernel`].
    NodeTxKernel,
    /// See [`Point::TxAppDone`].
    NodeTxAppDone,
}

impl Column {
    /// All columns, in the order of formats.
    pub const ALL: [Self; 49] = [
        Self::Rtt,
        Self::RttIntended,
        Self::RttKernel,
        Self::RttHw,
        Self::ScheduleError,
        Self::Residence,
        Self::OneWayForward,
        Self::OneWayBackward,
        Self::Intended,
        Self::TxApp,
        Self::TxSched,
        Self::TxKernel,
        Self::TxHw,
        Self::T2,
        Self::T3,
        Self::RxHw,
        Self::RxKernel,
        Self::RxApp,
        Self::ForwardPlusOffset,
        Self::BackwardMinusOffset,
        Self::Capture,
        Self::Gap,
        Self::GapError,
        Self::SizeBytes,
        Self::EndToEnd,
        Self::SenderOut,
        Self::LinkIn,
        Self::NodeDelay,
        Self::NodeDelayNetfilter,
        Self::NodeDelayDriver,
        Self::QueueingIn,
        Self::Processing,
        Self::ProcessingWithSend,
        Self::QueueingOut,
        Self::Qdisc,
        Self::LinkOut,
        Self::LinkDelay,
        Self::ReceiverIn,
        Self::NodeRxDriver,
        Self::NodeRxKernel,
        Self::NodeRxTcx,
        Self::NodePreRouting,
        Self::NodeRxApp,
        Self::NodeTxApp,
        Self::NodePostRouting,
        Self::NodeTxSched,
        Self::NodeTxTcx,
        Self::NodeTxKernel,
        Self::NodeTxAppDone,
    ];

    /// Columns of a one-way packet: timestamps of both ends and the delay components.
    pub const ONE_WAY: [Self; 20] = [
        Self::TxApp,
        Self::TxSched,
        Self::TxKernel,
        Self::RxKernel,
        Self::RxApp,
        Self::SizeBytes,
        Self::EndToEnd,
        Self::SenderOut,
        Self::LinkIn,
        Self::NodeDelay,
        Self::NodeDelayNetfilter,
        Self::NodeDelayDriver,
        Self::QueueingIn,
        Self::Processing,
        Self::ProcessingWithSend,
        Self::QueueingOut,
        Self::Qdisc,
        Self::LinkOut,
        Self::LinkDelay,
        Self::ReceiverIn,
    ];

    /// Columns of a paced packet.
    pub const PACED: [Self; 8] = [
        Self::ScheduleError,
        Self::Intended,
        Self::TxApp,
        Self::TxSched,
        Self::TxKernel,
        Self::T2,
        Self::Gap,
        Self::GapError,
    ];

    /// Delay components of a one-way packet; a node's delay appears with several timestamp sources.
    pub const PARTS: [Self; 11] = [
        Self::SenderOut,
        Self::LinkIn,
        Self::NodeDelayNetfilter,
        Self::NodeDelayDriver,
        Self::QueueingIn,
        Self::Processing,
        Self::QueueingOut,
        Self::Qdisc,
        Self::LinkOut,
        Self::LinkDelay,
        Self::ReceiverIn,
    ];

    /// Number of columns filled by a pinger.
    pub const MEASURED: usize = 18;

    /// Name, including the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtt => "rtt_ns",
            Self::RttIntended => "rtt_intended_ns",
            Self::RttKernel => "rtt_kernel_ns",
            Self::RttHw => "rtt_hw_ns",
            Self::ScheduleError => "schedule_error_ns",
            Self::Residence => "residence_ns",
            Self::OneWayForward => "one_way_forward_ns",
            Self::OneWayBackward => "one_way_backward_ns",
            Self::Intended => "intended_ns",
            Self::TxApp => "tx_app_ns",
            Self::TxSched => "tx_sched_ns",
            Self::TxKernel => "tx_kernel_ns",
            Self::TxHw => "tx_hw_ns",
            Self::T2 => "t2_ns",
            Self::T3 => "t3_ns",
            Self::RxHw => "rx_hw_ns",
            Self::RxKernel => "rx_kernel_ns",
            Self::RxApp => "rx_app_ns",
            Self::ForwardPlusOffset => "forward_plus_offset_ns",
            Self::BackwardMinusOffset => "backward_minus_offset_ns",
            Self::Capture => "capture_ns",
            Self::Gap => "gap_ns",
            Self::GapError => "gap_error_ns",
            Self::SizeBytes => "size_bytes",
            Self::EndToEnd => "end_to_end_ns",
            Self::SenderOut => "sender_out_ns",
            Self::LinkIn => "link_in_ns",
            Self::NodeDelay => "node_delay_ns",
            Self::NodeDelayNetfilter => "node_delay_netfilter_ns",
            Self::NodeDelayDriver => "node_delay_driver_ns",
            Self::QueueingIn => "queueing_in_ns",
            Self::Processing => "processing_ns",
            Self::ProcessingWithSend => "processing_s0_ns",
            Self::QueueingOut => "queueing_out_ns",
            Self::Qdisc => "qdisc_ns",
            Self::LinkOut => "link_out_ns",
            Self::LinkDelay => "link_delay_ns",
            Self::ReceiverIn => "receiver_in_ns",
            Self::NodeRxDriver => "node_rx_driver_ns",
            Self::NodeRxKernel => "node_rx_kernel_ns",
            Self::NodeRxTcx => "node_rx_tcx_ns",
            Self::NodePreRouting => "node_pre_routing_ns",
            Self::NodeRxApp => "node_rx_app_ns",
            Self::NodeTxApp => "node_tx_app_ns",
            Self::NodePostRouting => "node_post_routing_ns",
            Self::NodeTxSched => "node_tx_sched_ns",
            Self::NodeTxTcx => "node_tx_tcx_ns",
            Self::NodeTxKernel => "node_tx_kernel_ns",
            Self::NodeTxAppDone => "node_tx_app_done_ns",
        }
    }

    /// The column of a node's timestamp at this point.
    pub const fn of_node(point: Point) -> Self {
        match point {
            Point::RxDriver => Self::NodeRxDriver,
            Point::RxKernel => Self::NodeRxKernel,
            Point::RxTcx => Self::NodeRxTcx,
            Point::PreRouting => Self::NodePreRouting,
            Point::RxApp => Self::NodeRxApp,
            Point::TxApp => Self::NodeTxApp,
            Point::PostRouting => Self::NodePostRouting,
            Point::TxSched => Self::NodeTxSched,
            Point::TxTcx => Self::NodeTxTcx,
            Point::TxKernel => Self::NodeTxKernel,
            Point::TxAppDone => Self::NodeTxAppDone,
        }
    }

    /// The column with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_order_and_names_are_consistent() {
        for (number, column) in Column::ALL.into_iter().enumerate() {
            assert_eq!(column as usize, number);
            assert_eq!(Column::named(column.name()), Some(column));
        }
        assert_eq!(Column::named("rtt"), None);
        for point in Point::ALL {
            let name = format!("node_{}_ns", point.name());
            assert_eq!(Column::named(&name), Some(Column::of_node(point)));
        }
    }
}
