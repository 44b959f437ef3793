//! Known slips and properties in synthetic tables are found, with the right value.

use dwell_audit::{Finding, Mapping, Report, audit_tables, read};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

const SEED: u64 = 2_901;

fn rng() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(SEED)
}

fn audit(text: &str) -> Report {
    audit_mapped(text, "")
}

fn audit_mapped(text: &str, columns: &str) -> Report {
    let mappings =
        if columns.is_empty() { Vec::new() } else { Mapping::parse_list(columns).unwrap() };
    let mut table = read(text.as_bytes(), "table.csv", &mappings).unwrap();
    table.name = "table".to_owned();
    audit_tables("table.csv", &[table], true)
}

/// Audits a description with these rows; `rest` follows them.
fn audit_described(rows: &str, rest: &str) -> Report {
    let directory =
        std::env::temp_dir().join(format!("dwell-audit-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("TABLE.toml");
    std::fs::write(&path, format!("rows = '''\n{rows}'''\n{rest}\n")).unwrap();
    let report = dwell_audit::audit_description(&path).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    report
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings.iter().map(|finding| finding.code).collect()
}

fn find<'r>(report: &'r Report, code: &str) -> &'r Finding {
    let found = report.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("seed {SEED}: no {code}: {:?}", report.findings))
}

fn column(name: &str, values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    values
        .into_iter()
        .fold(format!("{name}\n"), |text, value| format!("{text}{value:.decimals$}\n"))
}

fn log_normal(n: usize, rng: &mut Xoshiro256PlusPlus) -> Vec<f64> {
    (0..n)
        .map(|_| {
            let normal: f64 = StandardNormal.sample(rng);
            20.0 * (0.4 * normal).exp()
        })
        .collect()
}

fn clock(millis: f64) -> String {
    let millis = millis.round() as u64;
    let (seconds, rest) = (millis / 1_000, millis % 1_000);
    format!("{:02}:{:02}:{:02}.{rest:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[test]
fn ticks_of_common_clocks_are_found() {
    for (tick, decimals) in
        [(10.0, 0), (15.625, 3), (15.6, 1), (16.667, 1), (20.0, 0), (1.0, 3), (4.0, 2)]
    {
        let mut rng = rng();
        let values = (0..150).map(|_| (rng.random::<f64>() * 40.0 + 5.0).floor() * tick);
        let report = audit(&column("latency_ms", values.collect::<Vec<_>>(), decimals));
        let found = find(&report, "quantisation").value.unwrap();
        assert!((found / tick - 1.0).abs() < 0.005, "tick {tick}: {found}");
    }
}

#[test]
fn clusters_at_other_timeouts_are_found() {
    for (timeout, code) in
        [(200.0, "time-out-cluster"), (3_000.0, "time-out-cluster"), (640.0, "detached-cluster")]
    {
        let mut rng = rng();
        let mut values = log_normal(200, &mut rng);
        for at in (7..200).step_by(25) {
            values[at] = timeout + rng.random::<f64>() * 3.0;
        }
        let report = audit(&column("rtt [ms]", values, 2));
        let finding = find(&report, code);
        assert!((finding.value.unwrap() - timeout).abs() < 4.0, "{finding:?}");
        assert_eq!(finding.rows.len(), 8, "{finding:?}");
    }
}

#[test]
fn autocorrelation_reports_the_effective_number() {
    let mut rng = rng();
    let mut state = 0.0;
    let values: Vec<f64> = (0..2_000)
        .map(|_| {
            let noise: f64 = StandardNormal.sample(&mut rng);
            state = 0.8 * state + noise;
            100.0 + state
        })
        .collect();
    let report = audit(&column("latency_us", values, 3));
    let effective = find(&report, "autocorrelation").value.unwrap();
    // Theory: n (1 - phi) / (1 + phi) = 222.
    assert!((120.0..330.0).contains(&effective), "seed {SEED}: {effective}");
}

#[test]
fn drift_and_level_shift_are_distinguished() {
    let mut rng = rng();
    let noise: Vec<f64> = (0..200).map(|_| StandardNormal.sample(&mut rng)).collect();
    let drifting = noise.iter().enumerate().map(|(at, noise)| 50.0 + at as f64 * 0.02 + noise);
    let report = audit(&column("latency_ms", drifting, 3));
    let drift = find(&report, "drift").value.unwrap();
    assert!((drift - 4.0).abs() < 1.5, "{drift}");
    let stepped = noise
        .iter()
        .enumerate()
        .map(|(at, noise)| 50.0 + noise + if at >= 120 { 25.0 } else { 0.0 });
    let report = audit(&column("latency_ms", stepped, 3));
    let shift = find(&report, "level-shift");
    assert!((shift.value.unwrap() - 25.0).abs() < 1.0, "{shift:?}");
    assert!((119..=123).contains(&shift.rows[0]), "{shift:?}");
    assert!(!codes(&report).contains(&"drift"));
}

/// A table with times; `next` returns the time until the next request.
fn timed(n: usize, mut next: impl FnMut(usize, f64) -> f64) -> Vec<(f64, f64)> {
    let mut rng = rng();
    let mut sent = 36_000_000.0;
    (0..n)
        .map(|row| {
            let exponential: f64 = Exp1.sample(&mut rng);
            let row_of = (sent, 30.0 + 60.0 * exponential);
            sent += next(row, row_of.1);
            row_of
        })
        .collect()
}

fn timed_text(rows: &[(f64, f64)]) -> String {
    rows.iter().fold("sent,received,latency_ms\n".to_owned(), |text, (sent, delay)| {
        let delay = delay.round();
        let sent = sent.round();
        format!("{text}{},{},{delay}\n", clock(sent), clock(sent + delay))
    })
}

#[test]
fn closed_loop_is_found_and_open_loop_is_not() {
    let closed = audit(&timed_text(&timed(40, |row, delay| delay + 500.0 + (row % 5) as f64)));
    let wait = find(&closed, "closed-loop").value.unwrap();
    assert!((wait - 502.0).abs() < 3.0, "{wait}");
    let open = audit(&timed_text(&timed(40, |_, _| 1_000.0)));
    assert_eq!(codes(&open), Vec::<&str>::new());
}

#[test]
fn clock_steps_are_found_at_their_rows() {
    let back = audit(&timed_text(&timed(60, |row, _| if row == 29 { -2_500.0 } else { 1_000.0 })));
    let step = find(&back, "clock-step");
    assert_eq!((step.rows.as_slice(), step.value), ([31].as_slice(), Some(-3_500.0)));
    let forward =
        audit(&timed_text(&timed(60, |row, _| if row == 29 { 1_370.0 } else { 1_000.0 })));
    let step = find(&forward, "clock-step");
    assert_eq!(step.rows, [31]);
    assert!((step.value.unwrap() - 370.0).abs() < 2.0, "{step:?}");
    // A lost row leaves a whole interval.
    let lost = audit(&timed_text(&timed(60, |row, _| if row == 29 { 2_000.0 } else { 1_000.0 })));
    assert_eq!(codes(&lost), Vec::<&str>::new());
}

#[test]
fn times_over_midnight_are_no_clock_step() {
    let text = "sent,received,latency_ms\n23:59:58.900,23:59:59.100,200\n23:59:59.900,00:00:00.110,210\n\
                00:00:00.900,00:00:01.120,220\n";
    assert_eq!(codes(&audit(text)), Vec::<&str>::new());
}

#[test]
fn wrong_latencies_are_found_in_any_unit_and_name() {
    let text = "Start;Ende;Dauer\n12:00:00,100000;12:00:00,101500;1,5\n12:00:01,100000;12:00:01,101200;2,1\n\
                12:00:02,100000;12:00:02,101900;1,9\n";
    let report = audit(text);
    let finding = find(&report, "latency-contradicts-timestamps");
    assert_eq!((finding.rows.as_slice(), finding.value), ([2].as_slice(), Some(1.2)));
    let mapped = "a,b,c\n1.000,1.250,250\n2.000,2.300,300\n3.000,3.100,900\n4.000,4.200,200\n";
    let report = audit_mapped(mapped, "sent=a:s,received=b:s,latency=c:ms");
    assert_eq!(find(&report, "latency-contradicts-timestamps").value, Some(100.0));
    let epoch = "tx,rx,rtt_us\n1700000000.000100,1700000000.000350,250.0\n1700000001.000100,1700000001.000350,205.0\n";
    assert_eq!(find(&audit(epoch), "latency-contradicts-timestamps").rows, [2]);
}

#[test]
fn latency_in_another_unit_is_one_finding() {
    let rows: String = (0..30)
        .map(|row| {
            format!(
                "{},{},{}\n",
                clock(36_000_000.0 + f64::from(row) * 1_000.0),
                clock(36_000_000.0 + f64::from(row * 1_000 + 20 + row)),
                (20 + row) * 1_000
            )
        })
        .collect();
    let report = audit(&format!("sent,received,latency_ms\n{rows}"));
    assert_eq!(report.serious, 1, "{:?}", report.findings);
    let finding = find(&report, "latency-contradicts-timestamps");
    assert!(finding.message.contains("in us, not in ms"), "{finding:?}");
}

#[test]
fn rounding_of_stamps_is_no_contradiction() {
    let mut rng = rng();
    let mut text = "sent,received,latency_ms\n".to_owned();
    for row in 0..500 {
        let sent = 36_000_000.0 + f64::from(row) * 1_000.0 + rng.random::<f64>();
        let delay = 20.0 + 30.0 * rng.random::<f64>();
        // Half of the tables in the world cut digits instead of rounding.
        let (from, to) = if row % 2 == 0 {
            (sent, sent + delay)
        } else {
            (sent.floor(), (sent + delay).floor())
        };
        text += &format!("{},{},{}\n", clock(from), clock(to), delay.floor());
    }
    assert_eq!(audit(&text).serious, 0, "seed {SEED}");
}

#[test]
fn malformed_cells_are_serious_and_missing_ones_are_not() {
    let text = "sent,received,latency_ms\n10:00:00.100,10:00:00.150,50\n10:61:01.100,10:00:01.150,50\n\
                10:00:02.100,,\n10:00:03.100,10:00:03.150,fast\n10:00:04.100,10:00:04.150,50,extra\n";
    let report = audit(text);
    assert_eq!(report.serious, 3);
    assert_eq!(find(&report, "malformed-timestamp").rows, [2]);
    assert_eq!(find(&report, "malformed-cell").rows, [4]);
    assert_eq!(find(&report, "malformed-row").rows, [5]);
    assert_eq!(find(&report, "missing-cells").rows, [3]);
    let only_missing = audit("id,rtt_ms\n0,1.5\n1,NaN\n2,\n3,1.7\n");
    assert_eq!((only_missing.serious, codes(&only_missing)), (0, vec!["missing-cells"]));
}

#[test]
fn ten_rows_leave_most_checks_undecided() {
    let report = audit(&column("latency", log_normal(10, &mut rng()), 1));
    assert_eq!(report.findings, []);
    let undecided: Vec<&str> = report.cannot_tell.iter().map(|one| one.code).collect();
    for code in ["unknown-unit", "closed-loop", "autocorrelation", "percentile"] {
        assert!(undecided.contains(&code), "{code}: {undecided:?}");
    }
}

#[test]
fn unequal_numbers_of_values_are_noted() {
    let mut rng = rng();
    let tables: Vec<_> = [30, 28]
        .into_iter()
        .map(|n| {
            let text = column("rtt_ms", log_normal(n, &mut rng), 2);
            let mut table = read(text.as_bytes(), "x", &[]).unwrap();
            table.name = format!("n{n}");
            table
        })
        .collect();
    let report = audit_tables("x", &tables, true);
    assert_eq!(codes(&report), ["unequal-counts"]);
    let wide = audit("tcp_ms,udp_ms\n1.1,2.2\n1.3,\n1.2,2.1\n");
    assert!(codes(&wide).contains(&"unequal-counts"));
}

#[test]
fn printed_slips_are_named() {
    let raw = log_normal(60, &mut rng());
    let rows: Vec<f64> = raw.iter().map(|value| (value * 10.0).round() / 10.0).collect();
    let mut sorted = rows.clone();
    sorted.sort_by(f64::total_cmp);
    let mut distinct = sorted.clone();
    distinct.dedup();
    let (n, sum) = (rows.len() as f64, rows.iter().sum::<f64>());
    let mean = sum / n;
    let sd = (rows.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let text = column("rtt_ms", rows.iter().copied(), 1);
    let case = |printed: String, code: &str, words: &str| {
        let report = audit_described(&text, &format!("printed = {{ {printed} }}"));
        assert_eq!(report.serious, 1, "{printed}: {:?}", report.findings);
        let finding = find(&report, code);
        assert!(finding.message.contains(words), "{printed}: {}", finding.message);
    };
    case(
        format!("mean = {:.1}", (sorted[29] + sorted[30]) / 2.0),
        "mean-contradicts-rows",
        "the median",
    );
    case(format!("max = {:.1}", sorted[56]), "trimmed-maximum", "p95");
    case(format!("sd = {:.2}", sd / n.sqrt()), "deviation-contradicts-rows", "standard error");
    case(format!("sd = {:.1}", sd * sd), "deviation-contradicts-rows", "the variance");
    case(format!("sum = {:.1}", sum - sorted[59]), "sum-contradicts-rows", "left out");
    case(format!("sum = {:.1}", sum + sorted[59]), "sum-contradicts-rows", "counted twice");
    case("count = 61".to_owned(), "count-contradicts-rows", "header");
    case(format!("mean = \"{:.0} us\"", mean), "mean-contradicts-rows", "in ms");
    case(format!("p90 = {:.1}", sorted[30]), "percentile-contradicts-rows", "");
    case("loss = \"5 %\"".to_owned(), "loss-contradicts-rows", "");
}

#[test]
fn results_of_rows_before_rounding_are_no_contradiction() {
    for (decimals, n) in [(0, 13), (0, 200), (1, 40), (3, 50)] {
        for seed in 0..20 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED + seed);
            let raw = log_normal(n, &mut rng);
            let mut sorted = raw.clone();
            sorted.sort_by(f64::total_cmp);
            let sum: f64 = raw.iter().sum();
            let mean = sum / n as f64;
            let squares: f64 = raw.iter().map(|value| (value - mean).powi(2)).sum();
            let sd = (squares / (n as f64 - 1.0)).sqrt();
            let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
            let p90 = sorted[(n * 9).div_ceil(10) - 1];
            for digits in 0..4 {
                let printed = format!(
                    "printed = {{ n = {n}, sum = \"{sum:.digits$}\", mean = \"{mean:.digits$}\", sd = \"{sd:.digits$}\", \
                     median = \"{median:.digits$}\", min = \"{:.digits$}\", max = \"{:.digits$}\", p90 = \"{p90:.digits$}\" }}",
                    sorted[0],
                    sorted[n - 1]
                );
                let report =
                    audit_described(&column("rtt_ms", raw.iter().copied(), decimals), &printed);
                assert_eq!(report.serious, 0, "seed {}: {:?}", SEED + seed, report.findings);
            }
        }
    }
}

#[test]
fn sums_of_rows_that_were_not_rounded_are_exact() {
    let rows = timed(13, |_, _| 1_000.0);
    let sum: f64 = rows.iter().map(|(_, delay)| delay.round()).sum();
    let printed =
        |table: &str, sum: f64| audit_described(table, &format!("printed = {{ sum = {sum} }}"));
    // Each latency is the difference of its times.
    let table = timed_text(&rows);
    assert_eq!(printed(&table, sum).serious, 0);
    let report = printed(&table, sum + 1.0);
    assert_eq!(find(&report, "sum-contradicts-rows").value, Some(sum));
    let mean = audit_described(&table, &format!("printed = {{ mean = {:.0} }}", sum / 13.0 + 0.6));
    assert_eq!(mean.serious, 1, "{:?}", mean.findings);
    // Without times the rows may be rounded.
    let alone = column("latency_ms", rows.iter().map(|(_, delay)| delay.round()), 0);
    let report = printed(&alone, sum + 2.0);
    assert_eq!((codes(&report), report.serious), (vec!["not-the-printed-sum"], 0));
}

#[test]
fn sums_of_counts_are_exact() {
    let counts = [548, 607, 666, 412, 590, 701, 388];
    let total: u32 = counts.iter().sum();
    let table = |name: &str, total: u32| {
        counts.iter().enumerate().fold(format!("nr,{name}\n"), |text, (row, count)| {
            format!("{text}{},{count}\n", row + 1)
        }) + &format!("Total,{total}\n")
    };
    assert_eq!(audit(&table("packets", total)).findings, []);
    let wrong = audit(&table("packets", total + 2));
    assert_eq!(find(&wrong, "sum-contradicts-rows").value, Some(f64::from(total)));
    assert_eq!(audit(&table("packets per second", total + 2)).serious, 0, "a rate may be rounded");
}

#[test]
fn vague_explanations_are_not_certain() {
    let rows = "145\n160\n146\n152\n139\n148\n155\n151\n150\n162\n144\n149\n150\n";
    let report = audit_described(&format!("udp_ms\n{rows}"), "printed = { mean = 153.1 }");
    let finding = find(&report, "mean-contradicts-rows");
    assert!(!finding.message.contains("that is the mean without"), "{finding:?}");
}

#[test]
fn results_without_a_finite_value_are_undecided() {
    let rest = "[[printed]]\nname = \"ratio\"\nformula = \"mean(latency) / 0\"\nvalue = 1\n";
    let report = audit_described("latency_ms\n10\n12\n14\n", rest);
    let code = "result-contradicts-rows";
    assert!(report.cannot_tell.iter().any(|one| one.code == code), "{report:?}");
}

#[test]
fn derived_columns_are_checked_row_by_row() {
    let rows = "bytes,time_ms,rate\n1000,8,1000\n1500,10,1200\n1500,12,1100\n";
    let rest = "[[derived]]\ncolumn = \"rate\"\nformula = \"bytes * 8 / time_ms\"\n";
    let report = audit_described(rows, rest);
    let finding = find(&report, "derived-contradicts-row");
    assert_eq!((finding.rows.as_slice(), finding.printed), ([3].as_slice(), Some(1_100.0)));
    assert_eq!(report.serious, 1, "{:?}", report.findings);
}

#[test]
fn unsupported_percentiles_are_noted() {
    let raw = log_normal(40, &mut rng());
    let max = raw.iter().copied().fold(0.0, f64::max);
    let report =
        audit_described(&column("rtt_ms", raw, 2), &format!("printed = {{ p99 = {max:.2} }}"));
    let finding = find(&report, "unsupported-percentile");
    assert_eq!((finding.value, report.serious), (Some(100.0), 0));
}

#[test]
fn printed_results_without_rows_are_compared_with_each_other() {
    let text = "name = \"summary\"\nprinted = { n = 20, sum = 400, mean = 21.0, min = 5, max = 30, sd = 20 }\n";
    let directory =
        std::env::temp_dir().join(format!("dwell-audit-{}-{}", std::process::id(), unique()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("TABLE.toml");
    std::fs::write(&path, text).unwrap();
    let report = dwell_audit::audit_description(&path).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert!(codes(&report).starts_with(&["mean-contradicts-sum", "printed-values-contradict"]));
}

#[test]
fn footers_of_a_file_are_printed_results() {
    let text = "sent,received,latency_ms\n10:00:00.100,10:00:00.150,50\n10:00:01.100,10:00:01.160,60\n\
                10:00:02.100,10:00:02.170,70\nSum,,190\nMean:,,60.0\n";
    let report = audit(text);
    assert_eq!(report.tables[0].rows, 3);
    let sum = find(&report, "sum-contradicts-rows");
    assert_eq!((sum.value, sum.printed), (Some(180.0), Some(190.0)));
    assert!(!codes(&report).contains(&"mean-contradicts-rows"));
}

#[test]
fn rows_of_summaries_are_in_order() {
    let text = "setup,n,min (us),mean (us),p99 (us),max (us)\nidle,50,170,296,310,3256\nload,5000,147,4288,600,3699\n";
    let report = audit(text);
    let finding = find(&report, "printed-values-contradict");
    assert_eq!((finding.rows.as_slice(), finding.printed), ([2].as_slice(), Some(4_288.0)));
    assert_eq!(find(&report, "unsupported-percentile").rows, [1]);
}

#[test]
fn framed_tables_and_lines_of_units_are_read() {
    let framed = "| sent | received | latency |\n|---|---:|---|\n| 10:00:00.100 | 10:00:00.150 | 50 |\n\
                  | 10:00:01.100 | 10:00:01.150 | 50 |\n| 10:00:02.100 | 10:00:02.150 | 95 |\n";
    let report = audit(framed);
    assert_eq!(find(&report, "latency-contradicts-timestamps").rows, [3]);
    let units = "start,end,latency\ns,s,ms\n1.000,1.250,250\n2.000,2.300,300\n3.000,3.100,900\n";
    let report = audit(units);
    assert_eq!(report.tables[0].rows, 3);
    assert_eq!(find(&report, "latency-contradicts-timestamps").value, Some(100.0));
}

#[test]
fn few_values_on_a_coarse_tick_are_found() {
    let mut rng = rng();
    let values: Vec<f64> = (0..60).map(|_| (rng.random::<f64>() * 4.0).floor() * 10.0).collect();
    assert_eq!(find(&audit(&column("latency_ms", values, 0)), "quantisation").value, Some(10.0));
    let small: Vec<f64> = (0..60).map(|_| (rng.random::<f64>() * 4.0).floor()).collect();
    assert_eq!(codes(&audit(&column("latency_ms", small, 0))), Vec::<&str>::new());
}
