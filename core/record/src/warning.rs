//! The warnings of dwell's own results: code, severity and text of each, in one table.
//!
//! Codes are stable; texts may change. Files of other programs have warnings of their own, in the
//! crate that imports them. `docs/results.md` lists all codes.

use dwell_host::CpuUse;

crate::warnings! {
    /// A warning about the numbers of a result.
    pub enum Warning {
        // Any measurement.
        RingOverflow(count: u64) = "ring-overflow", Warning,
            "samples that did not fit into the ring: {count}; metrics lack them, packet counts of \
             sockets are complete";
        SendFailed(packets: String, reason: String) = "send-failed", Warning,
            "{packets} could not be sent: {reason}";
        IcmpErrors(count: u64, advice: String) = "icmp-errors", Warning,
            "ICMP errors: {count}; {advice}";
        MissingTimestamps(packets: &'static str, point: &'static str, count: u64) on point
            = "missing-timestamps", Warning,
            "{packets} without {point} timestamp: {count}";
        ClockStepped(effect: String) = "clock-stepped", Warning,
            "a clock was stepped: {effect}";
        ReceiveBufferFull(count: u64) = "receive-buffer-full", Warning,
            "packets dropped because a receive buffer was full: {count}; this host lost them, not \
             the network";
        FlowsEvicted(count: u64) = "flows-evicted", Warning,
            "flows evicted: {count}; raise --flows N if descriptors and memory allow it";
        RateMissed(percent: f64, why: String) = "rate-missed", Warning,
            "the rate was {percent:.1} % of the requested rate: {why}";
        OutputFailed(reason: String) = "output-failed", Warning,
            "the result is incomplete: {reason}";
        OtherPrograms(percent: f64, cpus: u32) = "other-programs", Warning,
            "other programs used {percent:.0} % of the CPU time during the measurement ({cpus} CPUs)";
        RunQueueWait(ms: f64) = "run-queue-wait", Warning,
            "the timing thread waited for a CPU (run-queue wait) for {ms:.0} ms per second";
        Steal(percent: f64) = "steal", Warning,
            "the hypervisor took {percent:.1} % of the CPU time (steal) during the measurement";
        NicDrops(interface: String) on interface = "nic-drops", Warning,
            "the network interface {interface} dropped packets of dwell or other traffic during \
             the measurement";

        // Ping.
        Unreachable(reason: String) = "unreachable", Warning,
            "{reason}";
        LateReplies(count: u64) = "late-replies", Warning,
            "{count} late replies are in no figure, so delays look shorter than they are: raise \
             --timeout";
        ReflectorSocketDrops(count: u64) = "reflector-socket-drops", Warning,
            "{count} packets of all senders were dropped by the reflector's socket; lost probes may \
             be among them: send less, or give the reflector a CPU of its own";
        ProbesAbandoned(count: u64) = "probes-abandoned", Note,
            "probes in flight when the run was stopped, not counted: {count}";
        InvalidRemoteTimestamps(count: u64) = "invalid-remote-timestamps", Warning,
            "{count} replies have a T2 and T3 that cannot be true; these timestamps are void: check \
             the reflector's clock";
        EarlyLosses(count: u64) = "early-losses", Warning,
            "{count} probes were declared lost before their time-out, because too many were in \
             flight: lower the rate or --timeout";
        ClientsFailed(count: u64, clients: u32) = "clients-failed", Warning,
            "{count} of {clients} clients failed or were disconnected by the other end: it may have \
             too few sockets";
        MalformedMessages(count: u64) = "malformed-messages", Warning,
            "dropped malformed messages: {count}";
        StrayBytes(count: u64) = "stray-bytes", Warning,
            "{count} bytes of the stream belong to no reply and were dropped: check that the far \
             end speaks this protocol";
        UnknownReplies(count: u64) = "unknown-replies", Warning,
            "dropped messages that answer no probe of this run: {count}";
        UnauthenticReplies(count: u64) = "unauthentic-replies", Warning,
            "dropped replies with a wrong HMAC: {count}";
        NoRelayDelay = "no-relay-delay", Warning,
            "no relay on the path reported a delay: start relays with dwell relay --telemetry";
        RelayDelayMissing(count: u64, of: u64) = "relay-delay-missing", Warning,
            "{count} of {of} replies have no relay delay: start every relay on the path with dwell \
             relay --telemetry";
        TooFewSlots(count: u64, of: u64) = "too-few-slots", Warning,
            "replies without enough slots for the relays of the return path: {count} of {of}; \
             --path needs two slots for each relay";
        OtherAddress(peer: String, ip: String, flag: &'static str) = "other-address", Warning,
            "{peer} did not answer; the name also has {ip}: try {flag}";
        NoKernelEvents(reason: String) = "no-kernel-events", Note,
            "--explain has no kernel events and knows only run-queue wait and steal, from /proc: \
             {reason}";
        MissingTracepoints(names: String) = "missing-tracepoints", Note,
            "--explain lacks these tracepoints of the kernel: {names}";
        KernelEventsLost(count: u64) = "kernel-events-lost", Note,
            "kernel events that were overwritten before --explain read them: {count}";
        IdleNotHeld(reason: String) = "idle-not-held", Warning,
            "--no-idle has no effect, and CPUs entered idle states: {reason}";
        NoDriverTimestamps(reason: String) = "no-driver-timestamps", Warning,
            "no timestamps of the driver: {reason}";
        DriverTimestampsLost(count: u64) = "driver-timestamps-lost", Warning,
            "timestamps of the driver that were lost because their buffer was full: {count}";
        NetemBeforeTimestamp(interface: String) on interface = "netem-before-timestamp", Note,
            "netem on {interface} delays probes before tx_kernel is taken: rtt_kernel_ns excludes \
             its delay, rtt_ns includes it";

        // Reflectors.
        DriverRepliesLost(interface: String, failed: u64, replies: u64, remedy: String)
            on interface = "driver-replies-lost", Warning,
            "{interface} loses replies ({failed} packets failed, {replies} replies){remedy}";
        XdpUnavailable(reason: String) = "xdp-unavailable", Warning,
            "sockets answer instead of XDP: {reason}";
        MergedUnrecognised(interface: String) on interface = "merged-unrecognised", Note,
            "the kernel lacks what the XDP program needs to recognise merged datagrams (Linux 6.2 \
             with BTF): those that {interface} receives merged count as one";

        // Trace.
        OldKernel(hooks: &'static str, reason: String) on hooks = "old-kernel", Note,
            "no {hooks} hooks: {reason}";
        HookUnavailable(interface: String, reason: String) on interface
            = "hook-unavailable", Note,
            "no rx_driver on interface {interface}: {reason}";
        HookAfterDriver(interface: String) on interface = "hook-after-driver", Note,
            "rx_driver of {interface} is taken just after the driver, which has no XDP: compare it \
             only with interfaces like it";
        NoPackets = "no-packets", Warning,
            "no packet of this flow passed";
        HooksWithoutDelay = "hooks-without-delay", Note,
            "these hooks give timestamps but no delay: a node delay needs netfilter (pre_routing \
             to post_routing), or xdp and tcx (rx_driver to tx_tcx)";
        OneSidedTrace = "one-sided-trace", Note,
            "no packet was seen at both ends of a node delay (pre_routing and post_routing, or \
             rx_driver and tx_tcx): packets from or to this node itself never are";
        MatchedByOrder(flows: usize) = "matched-by-order", Warning,
            "packets of {flows} flows carry no known id; they are matched by their order at each \
             hook, which loss and reordering break";
        TaiMoved = "tai-moved", Invalid,
            "CLOCK_TAI moved against CLOCK_REALTIME: all timestamps are void";

        // Relays.
        DescriptorLimit(limit: u64, flows: u32) = "descriptor-limit", Warning,
            "this process is limited to {limit} file descriptors: not enough for --flows {flows}; \
             raise the limit (ulimit -n)";
        TooLong(count: u64, bytes: usize) = "too-long", Warning,
            "{count} packets were too long for the path and dropped; encryption adds {bytes} \
             bytes: send smaller packets";
        TooShort(count: u64) = "too-short", Warning,
            "{count} packets were too short to be encrypted and were dropped";
        UnauthenticPackets(count: u64, what: &'static str) = "unauthentic-packets", Warning,
            "{count} {what}: not authentic; they were modified or forged, or the far end uses \
             another key, --cipher or --clear";
        Replayed(count: u64, what: &'static str) = "replayed", Warning,
            "{count} {what}: accepted before; the network duplicated them, or they were replayed";
        OutsideWindow(count: u64, what: &'static str) = "outside-window", Warning,
            "{count} {what}: older than the replay window";
        SaltsExhausted(count: u64) = "salts-exhausted", Warning,
            "{count} packets were dropped: the table of salts is full; restart the relays with a \
             new key";
        StreamsCut(count: u64) = "streams-cut", Warning,
            "{count} connections were cut off before the end of their stream";
        ClientRefused(times: u64, to: String, reason: String) = "client-refused", Warning,
            "{times} times a client could not be served: cannot reach {to}: {reason}";
        ConnectionsExhausted(times: u64, limit: u32, hint: &'static str)
            = "connections-exhausted", Warning,
            "{times} times a client could not be served: all {limit} connections were in use and \
             none was idle for a minute{hint}";
        ResourcesExhausted(times: u64, reason: String) = "resources-exhausted", Warning,
            "{times} times a client could not be served: no socket, thread or memory was left \
             here: {reason}";
        UserTimestampsOnly = "user-timestamps-only", Note,
            "TCP has user timestamps only: processing times of the reads of a stream are known";
        NoKernelTimestamps(why: &'static str) = "no-kernel-timestamps", Note,
            "no kernel timestamps{why}: processing is known, queueing and node delay are not";
        BelowTimestamps = "below-timestamps", Note,
            "packets pass below all timestamping: their delay at this node is unknown; measure \
             between the ends";
        InterfacesNotRelayed(names: String) = "interfaces-not-relayed", Warning,
            "packets from interfaces that do not forward are not relayed: {names}";
        PlacementIgnored = "placement-ignored", Note,
            "--cpu and --busy-poll have no effect: the driver relays, not a thread";
        FlowsUnrecorded(count: u64) = "flows-unrecorded", Warning,
            "{count} flows were evicted before they were recorded; the samples lack them";
        NotRelayedByDriver(count: u64) = "not-relayed-by-driver", Warning,
            "{count} packets could not be relayed by the driver (next hop unknown, packet too \
             long, or TTL expired)";
        DestinationsNotRelayed(addresses: String) = "destinations-not-relayed", Warning,
            "packets to {addresses} are not relayed";

        // Loads.
        ChannelsNotScanned(reason: String) = "channels-not-scanned", Note,
            "the neighbouring radio channels were not scanned: {reason}";
        FlowRateUnknown(count: usize, of: u32, batch: &'static str)
            = "flow-rate-unknown", Warning,
            "rate unknown for {count} of {of} flows: ITGSend logged fewer than {batch} packets";
        ConnectionsEnded(count: usize, of: usize, reason: String) = "connections-ended", Warning,
            "connections that ended early: {count} of {of}; the first: {reason}";
        ServerSilent(count: usize, of: usize) = "server-silent", Warning,
            "flows whose server did not report: {count} of {of}; check that `iperf -s -u` or \
             `dwell load sink` is running there";
        CpuLevelMissed = "cpu-level-missed", Warning,
            "the level was missed by more than 3 points: others used these CPUs, or a quota holds \
             this node";

        // Pace.
        NothingSent = "nothing-sent", Invalid,
            "stopped before the first packet that counts: no measurement";
        UserDepartures = "user-departures", Warning,
            "departures are user timestamps, taken before the kernel: no verdict is possible; use \
             --sink for timestamps of the far end";
        DeparturesOnSinkClock = "departures-on-sink-clock", Note,
            "departures are arrivals on the sink's clock: gaps are valid, schedule errors are \
             unknown";
        DeparturesIncludePath = "departures-include-path", Note,
            "departures are arrivals at the sink and include delays of the path";
        LimiterBypassed(name: String) = "limiter-bypassed", Warning,
            "{name} limits the rate of the outgoing interface, and this engine bypasses it: the \
             limit is not measured";
        LimiterBehindTunnel(name: String) = "limiter-behind-tunnel", Warning,
            "{name} hands packets to a program (tun or tap): departures are timestamped before \
             it, and a limit of the link behind it is not measured";
        PairsMerged(count: u64) = "pairs-merged", Warning,
            "{count} pairs have one timestamp for both packets because an offload merged them; \
             their gap is unknown, not 0";
        PairsReordered(count: u64) = "pairs-reordered", Warning,
            "{count} pairs left in reverse order";
        PairsApart(measured: String, planned: String) = "pairs-apart", Warning,
            "pairs left {measured} apart on average, not {planned}: sending a pair takes too long";
        GapsZero(count: u64) = "gaps-zero", Warning,
            "{count} gaps are 0: both packets have one timestamp, because an offload merged them \
             or the clock is too coarse; errors of these gaps are unknown";
        TrainHoles(count: u64) = "train-holes", Warning,
            "{count} trains have a hole longer than a gap: the machine was busy, or the path does \
             not take the rate";

        // Range.
        CoarseTimestamps(step: String) = "coarse-timestamps", Warning,
            "steps of the timestamps equal {step}: too coarse for ranging";
        InvalidResults(count: u64) = "invalid-results", Warning,
            "{count} invalid results were not used";
        ResultsTruncated(limit: usize) = "results-truncated", Warning,
            "only the first {limit} results were read";
        BoundUnproven = "bound-unproven", Note,
            "the bound holds only if the devices do not subtract more than their own delay";
        OffsetUncalibrated = "offset-uncalibrated", Warning,
            "results of FTM have a constant offset, often of tens of metres: calibrate at a known \
             distance";
        NoInterval = "no-interval", Warning,
            "too few round trips for an interval: measure more, better 1000";
        NoDistance(estimator: &'static str) = "no-distance", Warning,
            "too few round trips for a distance by {estimator}: measure more, or choose another \
             estimator";
        NegativeDistance = "negative-distance", Invalid,
            "the distance is negative beyond its error: the delay of the devices has changed since \
             the calibration; calibrate again";
        OtherDevice(target: String) = "other-device", Note,
            "the calibration is of {target}; only a device of the same type has the same delay";
        SpreadChanged(now: String, before: String) = "spread-changed", Warning,
            "the middle half of the round trips spans {now}, and {before} at the calibration: \
             conditions have changed, so the interval may be too narrow";

        // Flows through several machines.
        JobRefused(job: &'static str, node: String, reason: String) on node
            = "job-refused", Warning,
            "continued without {job} on {node}: {reason}";
        NodeDelayUnknown = "node-delay-unknown", Warning,
            "no two timestamps from the same source: the delays of the node and of its links are \
             unknown";
        UnrelatedClocks(nodes: String) = "unrelated-clocks", Warning,
            "clocks of {nodes} are unrelated: no delays between them";
        BoundedClocks(nodes: String, bound: String) = "bounded-clocks", Warning,
            "one-way delays between {nodes} are known within ± {bound}: their clocks were compared \
             by exchanges of messages";
        ClockUnbounded(node: String, reason: String) on node = "clock-unbounded", Warning,
            "the clock of {node} has no bound in this trial: {reason}; one-way delays to and from \
             it are left out";
        ImpossibleDelays(nodes: String) = "impossible-delays", Warning,
            "packets between {nodes} would have arrived before they were sent, so a timestamp or \
             the bound of their clocks is wrong; one-way delays between them are left out";
        RepeatedIds(count: u64) = "repeated-ids", Warning,
            "ids that the sender used twice: {count}, joined once";
        UnjoinedPackets(count: u64) = "unjoined-packets", Warning,
            "packets beyond the first million: {count} not joined";

        // Stored runs.
        DamagedSamples(trial: u32, path: String, reason: String, run: String) on path
            = "damaged-samples", Invalid,
            "samples of trial {trial} are damaged or missing ({path}: {reason}); the figures \
             shown were stored with the run, and `dwell show {run} --recompute` verifies the \
             samples";
        OneMachine = "one-machine", Note,
            "observations of one machine: losses elsewhere are unknown";
        LateDepartures(probes: &'static str, limit: String) = "late-departures", Warning,
            "{probes} were sent more than {limit} late";
        BusyHost(quantity: &'static str, node: String, mean: String, trial: u32, low: String,
            high: String, note: &'static str) on node = "busy-host", Warning,
            "{quantity} of {node} was {mean} on average in trial {trial} ({low} to {high}){note}";
    }
}

impl Warning {
    /// Returns a warning for each value above its threshold in [`CpuUse`].
    pub fn of_cpu_use(used: &CpuUse) -> Vec<Self> {
        let others = used.others_ratio.filter(|others| *others >= CpuUse::OTHERS_LIMIT);
        let wait = used.run_queue_wait_ns_per_s;
        let wait = wait.filter(|wait| *wait >= CpuUse::RUN_QUEUE_WAIT_LIMIT);
        let steal = Some(used.steal_ratio).filter(|steal| *steal >= CpuUse::STEAL_LIMIT);
        let warnings = [
            others.map(|others| Self::OtherPrograms(others * 100.0, used.cpus)),
            wait.map(|wait| Self::RunQueueWait(wait / 1e6)),
            steal.map(|steal| Self::Steal(steal * 100.0)),
        ];
        warnings.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_use_above_a_limit_is_a_warning() {
        let quiet = CpuUse { cpus: 2, others_ratio: Some(0.05), ..CpuUse::default() };
        assert_eq!(Warning::of_cpu_use(&quiet), []);
        let unknown = CpuUse { others_ratio: None, busy_ratio: 0.9, ..quiet };
        assert_eq!(Warning::of_cpu_use(&unknown), []);
        let busy = CpuUse {
            others_ratio: Some(0.727),
            steal_ratio: 0.018,
            run_queue_wait_ns_per_s: Some(25e6),
            ..quiet
        };
        let texts: Vec<_> = Warning::of_cpu_use(&busy).iter().map(Warning::to_string).collect();
        assert!(texts[0].starts_with("other programs used 73 %"), "{texts:?}");
        assert!(texts[1].contains("for 25 ms per second"), "{texts:?}");
        assert!(texts[2].contains("took 1.8 %"), "{texts:?}");
        assert_eq!(texts.len(), 3);
    }
}
