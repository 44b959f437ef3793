//! Kinds of figures: for what each applies, and the function that draws it.

use crate::analysis::paced::NodeTrials;
use crate::analysis::subject::{ExperimentKind, Subject};
use crate::figures::figure::{Figure, Question};
use crate::figures::overlay::Overlay;
use crate::model::{Axis, RunData};

/// A kind of figure.
pub(crate) struct FigureSpec {
    /// First part of the ids of its figures.
    pub(crate) id: &'static str,
    /// Question that it answers.
    pub(crate) question: Question,
    /// Runs that it is drawn for, and for which parts of them.
    pub(crate) applies: &'static [(ExperimentKind, Parts)],
    pub(crate) draw: Draw,
    /// First part of the id of the finding that it shows; the rest is that of its own id.
    pub(crate) shows: Option<&'static str>,
}

/// Parts of a run for which a figure is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The whole run.
    Run,
    /// Each varied parameter, the link rate last.
    EachAxis,
    /// The relay modes at one condition.
    OneCondition,
    /// Each relay mode against the size, at one condition except for these parameters.
    EachMode(&'static [&'static str]),
    /// Each sending node.
    EachSender,
}

/// Function that draws a figure, by the data that it needs. It returns nothing if the data do not
/// support the figure.
pub(crate) enum Draw {
    Run(fn(&RunData) -> Option<Figure>),
    RunAxis(fn(&RunData, &Axis) -> Option<Figure>),
    Delay(fn(&Subject) -> Option<Figure>),
    Axis(fn(&Subject, &Axis) -> Option<Figure>),
    Overlay(fn(&Overlay) -> Option<Figure>),
    Sender(fn(&NodeTrials) -> Vec<Figure>),
}
