//! Figures as data, findings in words, and the page that shows both.
//!
//! Takes runs as plain data ([`data`]) and knows nothing of where they are stored.

#![forbid(unsafe_code)]

pub mod data;
