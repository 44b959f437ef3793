//! Access to the rows of a run from which figures draw more than summaries.

use dwell_record::series::TimeBin;
use dwell_record::{Batch, Column};

/// Rows of a run beyond its summaries. A trial without rows has none, which is not an error.
pub trait SampleReader {
    /// Why rows cannot be read.
    type Error;

    /// Passes the samples of a trial to `each` in batches, with these columns.
    ///
    /// # Errors
    /// The samples cannot be read.
    fn samples(
        &self,
        trial: u32,
        columns: &[Column],
        each: &mut dyn FnMut(&Batch),
    ) -> Result<(), Self::Error>;

    /// Passes the host activity of a trial to `each`, by machine and time: machine, nanoseconds
    /// since the epoch, name of the value (`dwell_host::HostSample`), value. Returns the number of
    /// machines left out because the relation of their clock to that of the samples is unknown.
    ///
    /// # Errors
    /// The activity cannot be read.
    fn host(
        &self,
        trial: u32,
        each: &mut dyn FnMut(&str, i64, &str, f64),
    ) -> Result<usize, Self::Error>;

    /// Returns a metric of a trial in windows of at least `width_ns` nanoseconds.
    ///
    /// # Errors
    /// The metric cannot be read.
    fn windows(&self, trial: u32, metric: &str, width_ns: i64)
    -> Result<Vec<TimeBin>, Self::Error>;
}
