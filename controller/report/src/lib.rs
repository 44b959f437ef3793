//! Reports of runs: figures as Vega-Lite specifications, findings as sentences, and the HTML page
//! that shows both.
//!
//! Runs come in as plain data ([`model`]); this crate does not know where they are stored. A module
//! uses only those before it: `model`, `analysis`, `figures`, `page` (checked by
//! `tests/import-circles`).

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

pub mod analysis;
mod figures;
pub mod model;
mod page;

pub use analysis::collect::collect;
pub use analysis::findings::{Finding, findings};
pub use analysis::fits::{Estimate, Fit, fits};
pub use analysis::group::interval_of;
pub use analysis::machines::machines;
pub use analysis::measurement::{MeasurementAspect, measurement_aspects, mode_of};
pub use analysis::paced::{
    RateVerdict, RateVerdictKind, VerdictCard, rates_of_runs, tolerance, verdict_cards,
    verdict_table, verdict_words, verdicts,
};
pub use analysis::warnings::{RunWarning, warnings};
pub use figures::{Figure, comparison_figures, figures, smoke, sparkline};
pub use model::metric::main_metric;
pub use model::quantity::Unit;
pub use model::table::Table;
pub use page::{
    PageParts, assets, comparison_page, comparison_parts, figure_html, page, parts, table_html,
};
