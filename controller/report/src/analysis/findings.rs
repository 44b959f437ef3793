//! Findings of a run as sentences, the same for the terminal and the page.

mod finding;
mod pace;
mod relay;
mod run;

pub use finding::Finding;
pub use run::findings;
