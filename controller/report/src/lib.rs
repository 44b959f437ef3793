//! Reports of runs: figures as Vega-Lite specifications, findings as sentences, and the HTML page
//! that shows both.
//!
//! Runs come in as plain data ([`data`]); this crate does not know where they are stored.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

mod axes;
mod claims;
mod condition;
mod contention;
pub mod data;
mod distribution;
mod effect;
mod figure;
mod figures;
mod findings;
mod fits;
mod group;
mod host;
mod host_correlation;
mod host_wanted;
mod html;
mod machines;
mod measurement;
mod metric;
mod nlr;
mod paced;
mod packet_words;
mod page;
mod percentile_shift;
mod quantity;
mod sparkline;
mod subject;
mod table;
mod theme;
mod timeline_trials;
mod trust;
mod witness;

pub use claims::{Claim, ClaimUnit, ClaimVerdict, claims};
pub use figure::Figure;
pub use figures::{comparison_figures, figures, packets_wanted};
pub use findings::{Finding, findings};
pub use fits::{Estimate, Fit, fits};
pub use group::interval_of;
pub use host_wanted::host_wanted;
pub use machines::machines;
pub use measurement::{MeasurementAspect, measured, mode_of};
pub use metric::main_metric;
pub use paced::{
    RateVerdict, RateVerdictKind, rates_of_runs, tolerance, verdict_table, verdict_words, verdicts,
};
pub use page::{comparison_page, page};
pub use quantity::Unit;
pub use sparkline::sparkline;
pub use table::Table;
