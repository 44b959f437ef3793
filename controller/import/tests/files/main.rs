//! Files through the importer: what other programs recorded, and what nobody would.

mod captures;
mod hostile;
mod outcome;
mod programs;
