//! Checks: each is a function of tables that returns findings.

pub(crate) mod cells;
pub(crate) mod clusters;
pub(crate) mod counts;
pub(crate) mod dependence;
pub(crate) mod derived;
pub(crate) mod formulas;
pub(crate) mod printed;
pub(crate) mod ranging;
pub(crate) mod schedule;
pub(crate) mod stamps;
pub(crate) mod summaries;
pub(crate) mod tick;

use crate::finding::{CannotTell, Finding};

/// Number of values below which a property that is not found is undecided, not absent.
pub(crate) const MIN_DECIDING_VALUES: u64 = 20;

/// What the checks of one audit found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) findings: Vec<Finding>,
    pub(crate) cannot_tell: Vec<CannotTell>,
}

impl Found {
    pub(crate) fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(crate) fn cannot_tell(
        &mut self,
        code: &'static str,
        table: &str,
        message: impl Into<String>,
    ) {
        let table = table.to_owned();
        self.cannot_tell.push(CannotTell { code, table, message: message.into() });
    }
}
