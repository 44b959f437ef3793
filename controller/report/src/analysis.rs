//! Analysis of the data of a run: groups, verdicts, fits, findings, and trust in them.

pub(crate) mod clock_bound;
pub(crate) mod collect;
pub(crate) mod condition;
pub(crate) mod contention;
pub(crate) mod effect;
pub(crate) mod findings;
pub(crate) mod fits;
pub mod group;
pub(crate) mod host_correlation;
pub(crate) mod host_wanted;
pub(crate) mod key_figures;
pub(crate) mod machines;
pub(crate) mod measurement;
pub mod nlr;
pub mod paced;
pub(crate) mod packet_words;
pub(crate) mod packets;
pub(crate) mod percentile_shift;
pub(crate) mod subject;
pub(crate) mod timeline_trials;
pub(crate) mod trust;
pub(crate) mod warnings;
pub(crate) mod witness;
