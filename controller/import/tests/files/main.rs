//! Imports of recorded and of hostile files.

mod captures;
mod hostile;
mod outcome;
mod programs;
mod warning_codes;
