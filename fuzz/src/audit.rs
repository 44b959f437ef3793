//! Fuzz target for the auditor: any bytes as a CSV file must give a consistent report, and any text
//! as a description an error with a place or a description.
//! Shared by the libFuzzer target and the smoke test of `controller/audit`.

use dwell_audit::{Document, audit, audit_tables, read};

pub(crate) fn run(data: &[u8]) {
    if let Ok(mut table) = read(data, "input", &[]) {
        table.name = "input".to_owned();
        let text_rows = data.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        assert!(table.rows <= text_rows);
        for column in &table.columns {
            assert!(column.totals.count + column.totals.missing <= table.rows);
        }
        let report = audit_tables("input", std::slice::from_ref(&table), true);
        for finding in &report.findings {
            assert!(finding.rows.iter().all(|row| (1..=table.rows).contains(row)), "{finding:?}");
            assert!(!finding.message.is_empty());
        }
        assert!(!report.text().is_empty());
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(document) = Document::parse(text, "input")
    {
        // Its files are not read here: formulas and printed results are checked without rows.
        let _ = audit("input", &[], &document).text();
    }
}
