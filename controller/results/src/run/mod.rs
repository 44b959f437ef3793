//! Runs in the form that reports, pages and commands need.

mod data;
mod object;
mod stored_rows;

pub use data::{axes, judge, judged_data, main_column, run_data, verdict_data};
pub use object::{run_object, run_row_object};
