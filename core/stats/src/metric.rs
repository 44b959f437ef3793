//! Names of delay distributions in results and on the command line.

/// Delay distribution of a round trip. All contain received probes only, except
/// [`Metric::ScheduleError`], which contains every probe sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Round-trip delay (RFC 2681) seen by the program: `rx_app` minus `tx_app`.
    Rtt,
    /// RFC 2681 in the kernel: `rx_kernel` minus `tx_kernel`, if both timestamps exist.
    RttKernel,
    /// RFC 2681 wire time: `rx_hw` minus `tx_hw`, if both timestamps exist.
    RttHw,
    /// `rx_app` minus the intended send time (`docs/results.md`), so that a stalled sender is
    /// not hidden.
    RttIntended,
    /// Round-trip delay without the residence (RFC 8762 section 4: T4 - T1 - (T3 - T2)), with local
    /// timestamps from the near source of the measurement.
    RttMinusResidence,
    /// T3 - T2 of the reflector (RFC 8762), on its clock.
    Residence,
    /// One-way delay (RFC 7679): T2 minus the send timestamp from the near source, if both ends share a
    /// clock.
    OneWayForward,
    /// One-way delay (RFC 7679): the receive timestamp from the near source minus T3, if both ends
    /// share a clock.
    OneWayBackward,
    /// RFC 3393 for [`Metric::Rtt`], as a magnitude.
    Ipdv,
    /// RFC 3393 on the forward path (T2 minus the send timestamp from the near source), as a magnitude;
    /// a constant clock offset cancels.
    IpdvForward,
    /// RFC 3393 on the backward path (the receive timestamp from the near source minus T3), as a
    /// magnitude.
    IpdvBackward,
    /// RFC 5481: [`Metric::Rtt`] minus its minimum.
    Pdv,
    /// Time in the socket buffer and until the program wakes up (`docs/anatomy.md`): `rx_app`
    /// minus `rx_kernel`.
    QueueingIn,
    /// Actual minus intended send time (`docs/results.md`; send-time accuracy of Mok 2015).
    ScheduleError,
}

impl Metric {
    /// All metrics, in the order of results.
    pub const ALL: [Self; 14] = [
        Self::Rtt,
        Self::RttKernel,
        Self::RttHw,
        Self::RttIntended,
        Self::RttMinusResidence,
        Self::Residence,
        Self::OneWayForward,
        Self::OneWayBackward,
        Self::Ipdv,
        Self::IpdvForward,
        Self::IpdvBackward,
        Self::Pdv,
        Self::QueueingIn,
        Self::ScheduleError,
    ];

    /// Name in results, including the unit `_ns`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtt => "rtt_ns",
            Self::RttKernel => "rtt_kernel_ns",
            Self::RttHw => "rtt_hw_ns",
            Self::RttIntended => "rtt_intended_ns",
            Self::RttMinusResidence => "rtt_minus_residence_ns",
            Self::Residence => "residence_ns",
            Self::OneWayForward => "one_way_forward_ns",
            Self::OneWayBackward => "one_way_backward_ns",
            Self::Ipdv => "ipdv_ns",
            Self::IpdvForward => "ipdv_forward_ns",
            Self::IpdvBackward => "ipdv_backward_ns",
            Self::Pdv => "pdv_ns",
            Self::QueueingIn => "queueing_in_ns",
            Self::ScheduleError => "schedule_error_ns",
        }
    }

    /// The metric with this name, with or without `_ns`.
    pub fn named(name: &str) -> Option<Self> {
        let bare = name.strip_suffix("_ns").unwrap_or(name);
        Self::ALL.into_iter().find(|metric| metric.name().strip_suffix("_ns") == Some(bare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_name_with_and_without_unit() {
        for metric in Metric::ALL {
            assert_eq!(Metric::named(metric.name()), Some(metric));
            assert_eq!(Metric::named(metric.name().trim_end_matches("_ns")), Some(metric));
        }
        assert_eq!(Metric::named("rtt_us"), None);
        assert_eq!(Metric::named("rtt_ns_ns"), None);
    }
}
