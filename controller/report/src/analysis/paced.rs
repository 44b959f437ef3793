//! Runs that measure send-time accuracy: what each trial requested of which sender, and how
//! accurate the departures were.

mod part;
mod trial;
mod verdict;
mod verdict_text;

pub(crate) use part::{PacedPart, cross_traffic, distinct, parts};
pub use trial::is_paced;
pub(crate) use trial::{PacedTrial, middle, paced};
pub use verdict::{RateVerdict, RateVerdictKind, tolerance, verdicts};
pub use verdict_text::{rates_of_runs, verdict_table, verdict_words};
