//! Describes why an XDP program cannot be attached, with the program that occupies the place.

use std::io;

use libbpf_rs::query::ProgInfoIter;

use super::BpfError;
use crate::host::interface;

/// Error of attaching an XDP program to the interface with this index.
pub(super) fn refusal(interface: u32, error: io::Error) -> BpfError {
    let is_taken = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
    let other = is_taken.then(|| interface::xdp_program(interface).ok().flatten());
    let name = |id: u32| {
        let found = ProgInfoIter::default().find(|program| program.id == id);
        found.map_or_else(String::new, |found| format!(" '{}'", found.name.to_string_lossy()))
    };
    let why = match other {
        Some(Some(id)) => format!(" (XDP program {id}{} is attached)", name(id)),
        Some(None) => " (another XDP program is attached)".to_owned(),
        None => String::new(),
    };
    BpfError::Attach { place: format!("XDP{why}"), error }
}
