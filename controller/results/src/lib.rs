//! Runs and devices of a data directory, in the form that commands and pages show. The store keeps
//! rows; this crate joins them with plans, published values and verdicts.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr)]

pub mod age;
pub mod amounts;
pub mod compare;
pub mod device;
mod owner;
mod run;

pub use owner::owner;
pub use run::{
    axes, judge, judged_data, main_column, run_data, run_object, run_row_object, verdict_data,
};

/// Receives a sentence about each stored thing that cannot be read and is left out.
pub type OnProblem<'a> = &'a dyn Fn(&str);

/// Formats an error with its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
