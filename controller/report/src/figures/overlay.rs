//! Several distributions in one figure, on shared axes.

use crate::group::Group;
use crate::quantity::Unit;

/// Distributions to lie over each other, and what they are distributions of.
#[derive(Clone, Copy)]
pub(crate) struct Overlay<'a> {
    /// The delay as a sentence says it.
    pub(crate) noun: &'a str,
    pub(crate) unit: Unit,
    pub(crate) caption: &'a str,
    /// Each with at least one sample.
    pub(crate) groups: &'a [Group<'a>],
    /// What a reader must know about how the groups were made.
    pub(crate) note: Option<&'a str>,
}

impl Overlay<'_> {
    /// The smallest and the largest of all values.
    pub(crate) fn extremes(&self) -> Option<(i64, i64)> {
        let min = self.groups.iter().filter_map(|group| group.steps.min()).min()?;
        Some((min, self.groups.iter().filter_map(|group| group.steps.max()).max()?))
    }

    /// What a figure of distributions must say beside figures of typical trials; empty where each
    /// group is one trial.
    pub(crate) fn pooled(&self) -> &'static str {
        if self.groups.iter().any(Group::is_pooled) {
            " Curve, sentence and table are of all samples of a group together, not of its single \
             trials."
        } else {
            ""
        }
    }

    /// A finding with the note behind it.
    pub(crate) fn noted(&self, finding: String) -> String {
        match self.note {
            Some(note) => format!("{finding} {note}"),
            None => finding,
        }
    }

    /// The groups' labels, in order.
    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.label.as_str())
    }
}
