//! Schedules: who measures whom, how, and when. A schedule is a TOML file about the whole fleet; each
//! node receives its own part.

mod cost;
mod error;
mod expand;
mod file;
mod selection;
mod window;

pub use cost::{NodeCost, costs};
pub use error::ScheduleError;
pub use expand::{Entry, Expansion, expand};
pub(crate) use file::is_name;
pub use file::{Limits, Measure, Names, NodeSettings, Schedule, Star};
pub(crate) use selection::{NodeNames, Selection};
pub use window::Window;
