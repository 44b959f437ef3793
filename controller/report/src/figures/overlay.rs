//! Data of figures that overlay several distributions.

use crate::analysis::group::Group;
use crate::model::quantity::Unit;

/// Distributions of one delay to overlay.
#[derive(Clone, Copy)]
pub(crate) struct Overlay<'a> {
    /// Readable name of the delay.
    pub(crate) noun: &'a str,
    pub(crate) unit: Unit,
    pub(crate) caption: &'a str,
    /// Each with at least one sample.
    pub(crate) groups: &'a [Group<'a>],
    /// Parameter that distinguishes the groups: `relay`, `run`; empty for parameters.
    pub(crate) by: &'a str,
    /// How the groups were formed, for readers.
    pub(crate) note: Option<&'a str>,
    /// Finding of a box plot, instead of the medians.
    pub(crate) finding: Option<&'a str>,
}

impl Overlay<'_> {
    /// Minimum and maximum of all values.
    pub(crate) fn extremes(&self) -> Option<(i64, i64)> {
        let min = self.groups.iter().filter_map(|group| group.steps.min()).min()?;
        Some((min, self.groups.iter().filter_map(|group| group.steps.max()).max()?))
    }

    /// Note that distributions are pooled over trials; empty if each group is one trial.
    pub(crate) fn pooled(&self) -> &'static str {
        if self.groups.iter().any(Group::is_pooled) {
            " Pooled over all samples of a group."
        } else {
            ""
        }
    }

    /// Appends the note to a finding.
    pub(crate) fn noted(&self, finding: String) -> String {
        match self.note {
            Some(note) => format!("{finding} {note}"),
            None => finding,
        }
    }

    /// Labels of the groups.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.label.as_str())
    }
}
