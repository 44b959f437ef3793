//! Warnings about imported files: code, severity and text of each, in one table.
//!
//! All have the severity `Warning`: a stored warning has no other source for its severity than
//! `dwell_record::Warning::CODES`, which does not have these codes.

dwell_record::warnings! {
    /// A warning about an imported file or one of its flows.
    pub enum ImportWarning {
        // Damaged files.
        Truncated(detail: String) = "truncated", Warning,
            "the file was cut short: {detail}";
        Malformed(reason: String) = "malformed", Warning,
            "the file is malformed: {reason}; the rest was left out";
        DamagedFrames(count: u64) = "damaged-frames", Warning,
            "damaged frames left out: {count}";
        RowsSkipped(count: u64, row: u64, text: String) = "rows-skipped", Warning,
            "{count} unreadable rows were skipped; the first is row {row}: '{text}'";
        TotalsMissing = "totals-missing", Warning,
            "no totals: the output ends before them, so losses at the end are unknown";

        // Data left out.
        PacketsLeftOut(count: u64, what: &'static str) on what = "packets-left-out", Warning,
            "left out {count} {what}";
        FlowsLeftOut(limit: usize, count: u64) = "flows-left-out", Warning,
            "observations of flows beyond {limit} left out: {count}";
        UnsupportedLink(link: u32) = "unsupported-link", Warning,
            "packets of link type {link} are not supported";
        UnknownColumn(name: String) on name = "unknown-column", Warning,
            "unknown column left out: '{name}'";
        IntervalsLeftOut(limit: usize) = "intervals-left-out", Warning,
            "only the first {limit} intervals are kept";
        RatesOnly = "rates-only", Warning,
            "TCP: only rates are imported";
        NumbersBelowFirst(count: u64) = "numbers-below-first", Warning,
            "echo messages left out because their numbers are below the first request: {count}";
        ImpossibleTimes(count: u64) = "impossible-times", Warning,
            "round trips and residence times left out because they would be negative: {count}";
        UndecidedRequests(count: u64) = "undecided-requests", Warning,
            "requests at the end of the capture, neither received nor lost because the reply may \
             have come later: {count}";
        ProbeInTransit = "probe-in-transit", Warning,
            "the last probe was still in transit and is not counted";

        // Data that the file contradicts or does not have.
        TotalsOnly(program: &'static str, kept: &'static str) = "totals-only", Warning,
            "no samples and no percentiles: {program} prints only {kept}";
        CountsContradict(sent: u64, first: u64) = "counts-contradict", Warning,
            "ping states {sent} packets, which its lines contradict; packets from {first} on are \
             left out";
        CountsLeftOut(why: &'static str) = "counts-left-out", Warning,
            "{why}: counts left out";
        UncountedDatagrams(count: u64) = "uncounted-datagrams", Warning,
            "datagrams at the end of the test that iperf3 counts as received and its receiver did \
             not count: {count}";
        EqualTimes(count: u64) = "equal-times", Warning,
            "{count} records have equal times for sending and receiving, as in the log of a \
             sender: they have no delay";
        ImpossibleValue(name: String, stated: String, why: &'static str) on name
            = "impossible-value", Warning,
            "{name} is null: the file states {stated}, {why}";
        ImpossibleMetric(name: String, reason: String) on name = "impossible-metric", Warning,
            "{name} is left out: {reason}";
        NegativeDelays(count: String) = "negative-delays", Warning,
            "negative one-way delays: {count}; the clocks of both ends differ, which shifts every \
             one-way delay by the same amount";
        RouterLimitsReplies = "router-limits-replies", Warning,
            "a router limits its own replies: loss and delay of hops before the last are not \
             those of the path";
        ProgramSays(program: &'static str, text: String) = "program-says", Warning,
            "{program} says: {text}";
    }
}

#[cfg(test)]
mod tests {
    use dwell_record::{Severity, TrustWarning, Warning};

    use super::*;

    #[test]
    fn stored_warning_keeps_its_severity() {
        for (code, severity) in ImportWarning::CODES {
            let stored = TrustWarning { code: (*code).into(), text: String::new(), on: None };
            assert_eq!((*severity, stored.severity()), (Severity::Warning, Severity::Warning));
            assert!(Warning::CODES.iter().all(|(other, _)| other != code), "{code} twice");
        }
    }
}
