//! Cells that programs print in unusual ways are read; those that are wrong are found.

use dwell_audit::{Finding, Mapping, Report, audit_tables, read};

fn audit(text: &str) -> Report {
    let mut table = read(text.as_bytes(), "table.csv", &[]).unwrap();
    table.name = "table".to_owned();
    audit_tables("table.csv", &[table], true)
}

fn of<'r>(report: &'r Report, code: &str) -> Vec<&'r Finding> {
    report.findings.iter().filter(|finding| finding.code == code).collect()
}

fn cannot_tell(report: &Report, code: &str) -> bool {
    report.cannot_tell.iter().any(|one| one.code == code)
}

/// A delay in milliseconds without structure.
fn delay(row: u64) -> u64 {
    40 + row * row * 7_919 % 61
}

/// Date and time as Python's `isoformat()`: no fraction if it is 0.
fn isoformat(micros: u64) -> String {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    if fraction == 0 {
        format!("2024-03-01T{clock}")
    } else {
        format!("2024-03-01T{clock}.{fraction:06}")
    }
}

/// A table with times in this resolution, in microseconds.
fn timed(rows: u64, resolution: u64) -> String {
    (0..rows).fold("sent,received,latency_ms\n".to_owned(), |text, row| {
        let sent = 36_000_000_000 + row * 1_013_000 + row * 7_919 % 997 * resolution;
        let received = sent + delay(row) * 1_000;
        format!("{text}{},{},{}\n", isoformat(sent), isoformat(received), delay(row))
    })
}

#[test]
fn python_times_without_a_zero_fraction_are_clean() {
    let text = timed(1_000, 1_000);
    assert!(text.lines().any(|line| line.split(',').next().unwrap().len() == 19), "none is whole");
    let report = audit(&text);
    assert_eq!((of(&report, "malformed-timestamp"), report.serious), (vec![], 0));
    assert_eq!(of(&report, "short-timestamp"), Vec::<&Finding>::new());
}

#[test]
fn lost_fractions_are_a_note_and_other_digits_are_serious() {
    let text = timed(30, 1);
    let line = text.lines().nth(5).unwrap();
    let sent = line.split(',').next().unwrap();
    let (whole, fraction) = sent.split_once('.').unwrap();
    let cut = audit(&text.replace(sent, whole));
    let [note] = of(&cut, "short-timestamp")[..] else { panic!("{:?}", cut.findings) };
    assert_eq!((note.rows.as_slice(), cut.serious), ([5].as_slice(), 0));
    let shorter = audit(&text.replace(sent, &format!("{whole}.{}", &fraction[..4])));
    assert_eq!(of(&shorter, "malformed-timestamp").len(), 1, "{:?}", shorter.findings);
}

#[test]
fn text_in_most_cells_of_a_named_column_is_malformed() {
    for words in [3, 6, 9, 10] {
        let text = (0..30).fold("id,latency_ms\n".to_owned(), |text, row| {
            let cell = if row % 10 < words { "slow".to_owned() } else { delay(row).to_string() };
            format!("{text}{row},{cell}\n")
        });
        let report = audit(&text);
        let rows: usize =
            of(&report, "malformed-cell").iter().map(|finding| finding.rows.len()).sum();
        assert_eq!(rows as u64, 3 * words, "{words} in ten: {:?}", report.findings);
        assert_eq!(cannot_tell(&report, "no-values"), words == 10);
    }
}

#[test]
fn text_in_a_column_with_a_unit_is_malformed() {
    let report = audit("seq,jitter_ms,status_s\n1,low,up\n2,high,down\n3,low,up\n");
    let found = of(&report, "malformed-cell");
    assert!(found.iter().all(|finding| finding.column.as_deref() == Some("jitter_ms")));
    assert_eq!(found.len(), 3, "{:?}", report.findings);
}

#[test]
fn text_beside_values_is_no_malformed_cell() {
    let text = (0..30).fold("request,response,latency_ms\n".to_owned(), |text, row| {
        format!("{text}GET /{row},200 OK,{}\n", delay(row))
    });
    let report = audit(&text);
    assert_eq!(report.findings, []);
    assert!(cannot_tell(&report, "text-column"));
}

#[test]
fn times_in_an_unknown_form_are_undecided() {
    let text = (0..20).fold("sent;received;latency_ms\n".to_owned(), |text, row| {
        let time =
            |millis: u64| format!("31.03.2024 10:00:{:02},{:03}", millis / 1_000, millis % 1_000);
        let sent = row * 1_000;
        format!("{text}{};{};{}\n", time(sent), time(sent + delay(row)), delay(row))
    });
    let report = audit(&text);
    assert_eq!(report.serious, 0, "{:?}", report.findings);
    assert!(cannot_tell(&report, "text-column"));
}

#[test]
fn tables_without_values_are_undecided() {
    for text in [
        "sent,received,latency_ms\n",
        "sent,received,latency_ms\n,,\n,,\n,,\n",
        "name,comment\na,b\nc,d\n",
    ] {
        let report = audit(text);
        assert!(cannot_tell(&report, "no-values"), "{text}: {:?}", report.cannot_tell);
        assert_eq!(report.serious, 0);
    }
    let missing = audit("sent,received,latency_ms\n,,\n,,\n,,\n");
    assert_eq!(of(&missing, "missing-cells").len(), 1);
}

#[test]
fn cells_separated_by_spaces_are_read() {
    let report =
        audit("start end latency_ms\n1.0 1.25 250\n2.0 2.3 300\n3.0 3.1 900\n4.0 4.2 200\n");
    let [finding] = of(&report, "latency-contradicts-timestamps")[..] else {
        panic!("{:?}", report.findings)
    };
    assert_eq!((finding.rows.as_slice(), finding.value), ([3].as_slice(), Some(100.0)));
}

#[test]
fn units_per_cell_are_converted() {
    let report = audit("seq,rtt\n1,500 us\n2,1.5 ms\n3,2 ms\n4,800 us\n");
    let column = &report.tables[0].columns[1];
    assert_eq!((column.unit, column.mean, report.serious), (Some("us"), Some(1_200.0), 0));
}

#[test]
fn separators_of_thousands_are_read() {
    for separator in ['\'', ' ', '_'] {
        let text = format!("id;latency_us\n0;1{separator}735\n1;949\n2;12{separator}486.5\n");
        let column = audit(&text).tables[0].columns[1].clone();
        assert_eq!((column.count, column.max), (3, Some(12_486.5)), "'{separator}'");
    }
}

#[test]
fn quoted_line_feeds_are_part_of_their_cell() {
    let report = audit(
        "id,\"note\nof the row\",latency_ms\n1,\"a\nb\",3\n2,\"say \"\"hi\"\", ok\",4\n3,c,slow\n",
    );
    assert_eq!(report.tables[0].rows, 3);
    let [finding] = of(&report, "malformed-cell")[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.rows.as_slice(), report.serious), ([3].as_slice(), 1));
}

#[test]
fn quoted_line_feeds_at_ends_of_blocks_are_read() {
    // Longer than two blocks; rows have many lengths, so that a block ends within a quoted cell.
    let text = (0..120_000_u64).fold("id,note,latency_ms\n".to_owned(), |mut text, row| {
        use std::fmt::Write as _;
        let _ = writeln!(text, "{row},\"one\n{}\ntwo\",{}", row * row, delay(row));
        text
    });
    let report = audit(&text);
    assert_eq!((report.tables[0].rows, report.serious), (120_000, 0));
    assert_eq!(report.tables[0].columns[2].count, 120_000);
}

#[test]
fn hints_about_units_are_valid() {
    let text = "latency [fortnights]\n0.19\n0.7\n0.64\n";
    let report = audit(text);
    let hint = &report.cannot_tell.iter().find(|one| one.code == "unknown-unit").unwrap().message;
    let stated = hint.split('"').nth(1).unwrap().replace("UNIT", "ms");
    let mapping = Mapping::parse_list(&stated).unwrap();
    let table = read(text.as_bytes(), "table.csv", &mapping).unwrap();
    assert_eq!(table.columns[0].unit.map(dwell_audit::Unit::name), Some("ms"));
}

#[test]
fn repeated_names_keep_their_unit() {
    let report = audit("latency_ms,latency_ms\n6.72,0.33\n8.96,3.44\n7.52,3.16\n");
    assert_eq!(report.tables[0].columns[1].unit, Some("ms"));
    assert!(cannot_tell(&report, "repeated-name"));
}
