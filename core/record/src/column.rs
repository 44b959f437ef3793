//! Numeric columns of a sample, with their names in every format: CSV, JSON lines, Parquet.

use dwell_sample::Point;

dwell_units::named! {
    /// A numeric column, in nanoseconds unless its name states another unit. A data set omits
    /// columns without values.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Column {
        /// See [`dwell_stats::Metric::Rtt`].
        Rtt = "rtt_ns",
        /// See [`dwell_stats::Metric::RttIntended`].
        RttIntended = "rtt_intended_ns",
        /// See [`dwell_stats::Metric::RttKernel`].
        RttKernel = "rtt_kernel_ns",
        /// See [`dwell_stats::Metric::RttDriver`].
        RttDriver = "rtt_driver_ns",
        /// See [`dwell_stats::Metric::RttHw`].
        RttHw = "rtt_hw_ns",
        /// See [`dwell_stats::Metric::ScheduleError`].
        ScheduleError = "schedule_error_ns",
        /// See [`dwell_stats::Metric::Residence`].
        Residence = "residence_ns",
        /// See [`dwell_stats::Metric::OneWayForward`].
        OneWayForward = "one_way_forward_ns",
        /// See [`dwell_stats::Metric::OneWayBackward`].
        OneWayBackward = "one_way_backward_ns",
        /// Scheduled send time. This and the following timestamps are nanoseconds since the epoch
        /// of CLOCK_REALTIME unless stated otherwise.
        Intended = "intended_ns",
        /// `tx_app`
        TxApp = "tx_app_ns",
        /// `tx_sched`
        TxSched = "tx_sched_ns",
        /// `tx_tcx`
        TxTcx = "tx_tcx_ns",
        /// `tx_kernel`
        TxKernel = "tx_kernel_ns",
        /// `tx_hw`, on the network card's clock.
        TxHw = "tx_hw_ns",
        /// T2, on the far end's clock.
        T2 = "t2_ns",
        /// T3, on the far end's clock.
        T3 = "t3_ns",
        /// `rx_hw`, on the network card's clock.
        RxHw = "rx_hw_ns",
        /// `rx_driver`
        RxDriver = "rx_driver_ns",
        /// `rx_kernel`
        RxKernel = "rx_kernel_ns",
        /// `rx_app`
        RxApp = "rx_app_ns",
        /// T2 - T1 across two clocks: a delay plus an unknown offset. Only differences between two
        /// such values are meaningful. (Imported data.)
        ForwardPlusOffset = "forward_plus_offset_ns",
        /// T4 - T3 across two clocks: a delay minus the same offset. (Imported data.)
        BackwardMinusOffset = "backward_minus_offset_ns",
        /// Timestamp of the packet in a separate capture, on the capturing machine's clock.
        /// (Imported captures.)
        Capture = "capture_ns",
        /// Time since the previous packet of the same flow or train, on the clock of its
        /// timestamps. (Paced packets and imported data.)
        Gap = "gap_ns",
        /// |gap - scheduled gap| of a paced packet.
        GapError = "gap_error_ns",
        /// Packet size in bytes, as counted by its source. (Imported data.)
        SizeBytes = "size_bytes",
        /// One-way packets: the sender's `tx_app` to the receiver's `rx_app`. In these rows `tx_*`
        /// are timestamps of the sender and `rx_*` of the receiver.
        EndToEnd = "end_to_end_ns",
        /// See [`dwell_stats::Leg::SenderOut`].
        SenderOut = "sender_out_ns",
        /// See [`dwell_stats::Leg::LinkIn`].
        LinkIn = "link_in_ns",
        /// See [`dwell_stats::DelayComponent::NodeDelay`]; likewise for the following components.
        NodeDelay = "node_delay_ns",
        /// See [`dwell_stats::DelayComponent::NodeDelayNetfilter`].
        NodeDelayNetfilter = "node_delay_netfilter_ns",
        /// See [`dwell_stats::DelayComponent::NodeDelayDriver`].
        NodeDelayDriver = "node_delay_driver_ns",
        /// See [`dwell_stats::DelayComponent::QueueingIn`].
        QueueingIn = "queueing_in_ns",
        /// See [`dwell_stats::DelayComponent::Processing`].
        Processing = "processing_ns",
        /// See [`dwell_stats::DelayComponent::ProcessingWithSend`].
        ProcessingWithSend = "processing_s0_ns",
        /// See [`dwell_stats::DelayComponent::QueueingOut`].
        QueueingOut = "queueing_out_ns",
        /// See [`dwell_stats::DelayComponent::Qdisc`].
        Qdisc = "qdisc_ns",
        /// See [`dwell_stats::Leg::LinkOut`].
        LinkOut = "link_out_ns",
        /// See [`dwell_stats::Leg::LinkDelay`].
        LinkDelay = "link_delay_ns",
        /// See [`dwell_stats::Leg::ReceiverIn`].
        ReceiverIn = "receiver_in_ns",
        /// Timestamp at [`Point::RxDriver`] of the relaying node; likewise for the following
        /// points.
        NodeRxDriver = "node_rx_driver_ns",
        /// See [`Point::RxKernel`].
        NodeRxKernel = "node_rx_kernel_ns",
        /// See [`Point::RxTcx`].
        NodeRxTcx = "node_rx_tcx_ns",
        /// See [`Point::PreRouting`].
        NodePreRouting = "node_pre_routing_ns",
        /// See [`Point::RxApp`].
        NodeRxApp = "node_rx_app_ns",
        /// See [`Point::TxApp`].
        NodeTxApp = "node_tx_app_ns",
        /// See [`Point::PostRouting`].
        NodePostRouting = "node_post_routing_ns",
        /// See [`Point::TxSched`].
        NodeTxSched = "node_tx_sched_ns",
        /// See [`Point::TxTcx`].
        NodeTxTcx = "node_tx_tcx_ns",
        /// See [`Point::TxKernel`].
        NodeTxKernel = "node_tx_kernel_ns",
        /// See [`Point::TxAppDone`].
        NodeTxAppDone = "node_tx_app_done_ns",
    }
}

impl Column {
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
    pub const DELAY_COMPONENTS: [Self; 11] = [
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
    pub const MEASURED: usize = 21;

    /// The column of a node's timestamp at this point.
    pub const fn of_node(point: Point) -> Self {
        // Both are in packet order.
        Self::ALL[Self::NodeRxDriver as usize + point as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_those_of_points() {
        for column in Column::ALL {
            assert_eq!(Column::named(column.name()), Some(column));
        }
        for point in Point::ALL {
            let name = format!("node_{}_ns", point.name());
            assert_eq!(Column::named(&name), Some(Column::of_node(point)));
        }
    }
}
