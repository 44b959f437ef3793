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
