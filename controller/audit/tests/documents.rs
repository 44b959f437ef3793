//! The founding documents' tables have the findings that are known of them.

use std::path::Path;

use dwell_audit::{Finding, Report, Severity, audit_description};

fn report(document: &str) -> Report {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../documents/data");
    audit_description(&data.join(document).join("TABLE.toml")).unwrap()
}

fn of<'r>(report: &'r Report, code: &str, table: &str) -> Vec<&'r Finding> {
    let is_wanted = |finding: &&Finding| finding.code == code && finding.table == table;
    report.findings.iter().filter(is_wanted).collect()
}

fn single<'r>(report: &'r Report, code: &str, table: &str) -> &'r Finding {
    match of(report, code, table).as_slice() {
        [finding] => finding,
        found => panic!("{code} of {table}: {found:?}"),
    }
}

fn assert_near(finding: &Finding, value: f64, tolerance: f64) {
    let found = finding.value.unwrap();
    assert!((found - value).abs() <= tolerance, "{found}, not {value}: {finding:?}");
}

#[test]
fn chung_table_2_row_1_contradicts_its_timestamps() {
    let report = report("chung-2021");
    let latency = single(&report, "latency-contradicts-timestamps", "udp_best");
    assert_eq!((latency.value, latency.printed), (Some(326.0), Some(260.0)));
    assert_eq!((latency.rows.as_slice(), latency.severity), ([1].as_slice(), Severity::Serious));
    let mean = single(&report, "mean-contradicts-timestamps", "udp_best");
    assert_eq!((mean.value, mean.printed), (Some(496.0), Some(491.0)));
    assert_eq!(single(&report, "sum-contradicts-timestamps", "udp_best").value, Some(6_448.0));
}

#[test]
fn chung_sums_and_means_that_follow_are_not_reported() {
    let report = report("chung-2021");
    for finding in report.findings.iter().filter(|finding| finding.is_serious()) {
        let is_known = finding.table == "udp_best"
            || finding.code == "malformed-timestamp"
            || finding.message.contains("252 %");
        assert!(is_known, "{finding:?}");
    }
    assert_eq!(report.serious, 5);
    let faster = single(&report, "result-contradicts-rows", "");
    assert_near(faster, 1.52, 0.01);
}

#[test]
fn chung_table_4_has_a_malformed_timestamp() {
    let report = report("chung-2021");
    let finding = single(&report, "malformed-timestamp", "udp_worst");
    assert_eq!((finding.rows.as_slice(), finding.severity), ([5].as_slice(), Severity::Serious));
    assert!(finding.message.contains("20:58:04.7464"), "{finding:?}");
}

#[test]
fn chung_latencies_have_a_tick_of_46_ms() {
    let report = report("chung-2021");
    for table in ["udp_best", "tcp_worst", "udp_worst"] {
        assert_near(single(&report, "quantisation", table), 46.35, 0.1);
    }
    assert_near(single(&report, "quantisation", ""), 46.35, 0.06);
    assert!(of(&report, "quantisation", "tcp_best").is_empty());
}

#[test]
fn chung_tcp_clusters_at_one_and_two_seconds() {
    let report = report("chung-2021");
    let clusters = of(&report, "time-out-cluster", "tcp_best");
    assert_eq!(clusters.len(), 2, "{clusters:?}");
    assert_near(clusters[0], 1_000.0, 20.0);
    assert_near(clusters[1], 2_000.0, 10.0);
    assert_eq!(
        (clusters[0].rows.len(), clusters[1].rows.as_slice()),
        (9, [7, 8, 9, 13].as_slice())
    );
}

#[test]
fn chung_requests_wait_for_replies() {
    let report = report("chung-2021");
    for table in ["tcp_best", "udp_best", "tcp_worst", "udp_worst"] {
        assert_near(single(&report, "closed-loop", table), 5_000.0, 50.0);
    }
}

#[test]
fn roedlach_vock_means_are_those_of_distinct_values() {
    let report = report("roedlach-vock");
    for (table, mean, printed) in
        [("no_load", 281.35, 296.0), ("network_load", 278.66, 288.0), ("cpu_load", 288.39, 414.0)]
    {
        let finding = single(&report, "mean-of-distinct-values", table);
        assert_near(finding, mean, 0.005);
        assert_eq!((finding.printed, finding.unit), (Some(printed), Some("us")));
        assert_eq!(finding.severity, Severity::Serious);
    }
}

#[test]
fn roedlach_vock_summary_is_trimmed_at_p99_9() {
    let report = report("roedlach-vock");
    for (table, maximum, printed) in [
        ("no_load", 3_256.449, 693.1),
        ("network_load", 3_698.613, 611.5),
        ("cpu_load", 12_267.307, 8_886.4),
    ] {
        let finding = single(&report, "trimmed-maximum", table);
        assert_near(finding, maximum, 0.001);
        assert!((finding.printed.unwrap() - printed).abs() < 1e-6);
        assert!(finding.message.contains("p99.9"), "{finding:?}");
    }
    assert_eq!(report.serious, 6, "minima, maxima and counts are right: {:?}", report.findings);
}

#[test]
fn mok_equation_2_equals_the_mean_gap() {
    let report = report("mok-2015");
    let finding = single(&report, "formula-equals", "");
    assert!(finding.message.contains("equation (2)"), "{finding:?}");
    assert!(finding.message.contains("the mean gap"), "{finding:?}");
    assert!(!report.is_serious());
}

#[test]
fn ramstetter_round_trips_spread_over_1_8_km() {
    let report = report("ramstetter");
    let finding = single(&report, "range-spread", "log");
    assert_near(finding, 1.8, 0.01);
    assert!(finding.message.contains("1.8 km"), "{finding:?}");
    assert!(!report.is_serious());
}
