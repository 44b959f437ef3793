//! Numbered migrations, which all databases of the hub have. Each script leads from the previous version
//! to its own, in one transaction. The version of a database is the number of its last one, from 1.

use crate::error::{Cause, HubError};

/// Returns the scripts that lead from version `found` to the newest, with their numbers.
///
/// # Errors
/// The database is of a newer dwell.
pub(crate) fn pending<'a>(
    scripts: &'a [&'a str],
    found: u32,
    place: &str,
) -> Result<impl Iterator<Item = (u32, &'a str)> + use<'a>, HubError> {
    refuse_newer(found, scripts.len() as u32, place)?;
    Ok((1..).zip(scripts.iter().copied()).skip(found as usize))
}

/// Refuses the database of a newer dwell.
pub(crate) fn refuse_newer(found: u32, known: u32, place: &str) -> Result<(), HubError> {
    if found > known {
        return Err(HubError::Newer { place: place.to_owned(), found, known });
    }
    Ok(())
}

/// Refuses a database that needs a migration.
pub(crate) fn refuse_older(found: u32, newest: u32, place: &str) -> Result<(), HubError> {
    if found < newest {
        return Err(HubError::Older { place: place.to_owned(), found, newest });
    }
    Ok(())
}

/// Converts the error of a script.
pub(crate) fn failed<E: Into<Cause>>(place: &str, to: u32) -> impl FnOnce(E) -> HubError {
    let place = place.to_owned();
    move |error| HubError::Migration { place, to, source: error.into() }
}
