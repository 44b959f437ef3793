//! Figures of send-time accuracy as in Mok 2015, with its boards for comparison, and gap errors.

mod errors;
mod largest;
mod pairs;
mod panels;
mod rates;

use super::host;
use crate::analysis::paced::{paced, parts, verdicts};
use crate::analysis::subject::{Subject, caption};
use crate::figures::figure::Figure;
use crate::model::RunData;

/// Returns the figures, the most informative first; empty for other runs.
pub(super) fn pace(run: &RunData) -> Vec<Figure> {
    let all = paced(run);
    if all.is_empty() {
        return Vec::new();
    }
    let caption = caption(run);
    let mut figures = Vec::new();
    figures.extend(largest::largest(run, &verdicts(run), &caption));
    for part in parts(&all) {
        for flows in part.flow_ends() {
            figures.extend(rates::rates(&part, flows, &caption));
        }
        figures.extend(pairs::pairs(&part, &caption));
        figures.extend(errors::errors(&part, &caption));
    }
    figures.extend(Subject::of(run).and_then(|subject| host::host(&subject)));
    figures
}
