//! Runs that measure send-time accuracy: what each trial requested of which sender, and how
//! accurate the departures were.

mod card;
mod node_trials;
mod trial;
mod verdict;
mod verdict_text;

pub use card::{VerdictCard, verdict_cards};
pub(crate) use node_trials::{NodeTrials, by_node, cross_traffic, distinct};
pub use trial::is_paced;
pub(crate) use trial::{PacedTrial, paced};
pub use verdict::{RateVerdict, RateVerdictKind, tolerance, verdicts};
pub use verdict_text::{rates_of_runs, verdict_table, verdict_words};
