//! Round trips by the driver's timestamps over the time of a trial: the log of Ramstetter's driver
//! (S1.7, Fig 12).

use super::timeline;
use crate::analysis::subject::Subject;
use crate::figures::figure::Figure;
use crate::model::metric::RTT_DRIVER;

/// Returns `None` if no trial has timestamps of the driver, or they are the main delay.
pub(super) fn driver_timeline(subject: &Subject) -> Option<Figure> {
    if subject.metric == RTT_DRIVER {
        return None;
    }
    let driver = Subject::about(subject.run, RTT_DRIVER)?;
    Some(Figure { id: "driver-timeline".to_owned(), ..timeline::timeline(&driver)? })
}
