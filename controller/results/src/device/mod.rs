//! Devices with all that is stored about them.

mod abilities;
mod answer;
mod details;
mod known;
mod list;
mod verdict;

pub use abilities::{Ability, Lack, Lacks, abilities, lacks};
pub use answer::{CLOCK_ERROR, StoredAnswer, stored_answer};
pub use details::{
    DeviceDetails, answer_rows, check_object, description, in_use, lease_json, lease_object,
    one_line,
};
pub use known::{DeviceError, KnownDevice};
pub use list::{ListedDevice, device_table};
pub use verdict::{JudgedDevice, PLAN, card_text, cards, how_to_measure, published, verdict_list};
