//! Properties that a network driver reports through ETHTOOL ioctls (linux/ethtool.h): its name, the
//! enabled offloads, and where it can timestamp packets.
//!
//! The structures are read as words from a buffer larger than any of them, so no length that a
//! driver reports is trusted beyond the buffer.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;

use crate::sys::sockopt;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// String set with the names of features.
const ETH_SS_FEATURES: u32 = 4;
/// Length of a name in a string set, in bytes.
const ETH_GSTRING_LEN: usize = 32;
/// Maximum number of features: more than any kernel has (64 in 2026).
const MAX_FEATURES: usize = 256;

/// Timestamping abilities that a driver claims. Only a received timestamp proves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamping {
    /// The driver timestamps sent packets with the system clock.
    pub tx_software: bool,
    /// The card timestamps sent packets.
    pub tx_hardware: bool,
    /// The card timestamps received packets.
    pub rx_hardware: bool,
}

/// Returns the driver of interface `name`.
pub(crate) fn driver(name: &str) -> io::Result<String> {
    let mut words = [0; 64];
    words[0] = ETHTOOL_GDRVINFO;
    ask(name, &mut words)?;
    Ok(text(&bytes(&words)[4..36]))
}

/// Returns the timestamping abilities that the driver of interface `name` claims.
pub(crate) fn stamping(name: &str) -> io::Result<Stamping> {
    let mut words = [0; 64];
    words[0] = ETHTOOL_GET_TS_INFO;
    ask(name, &mut words)?;
    let flags = words[1];
    Ok(Stamping {
        tx_software: flags & libc::SOF_TIMESTAMPING_TX_SOFTWARE != 0,
        tx_hardware: flags & libc::SOF_TIMESTAMPING_TX_HARDWARE != 0,
        rx_hardware: flags & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0,
    })
}

/// Returns the enabled offloads of interface `name` by ethtool's names: all features that merge,
/// split or checksum packets.
pub(crate) fn offloads(name: &str) -> io::Result<Vec<String>> {
    let (names, states) = features(name)?;
    // Four words per 32 features: available, requested, active, never changed.
    let active = |index: usize| states[2 + index / 32 * 4 + 2] >> (index % 32) & 1 == 1;

    let kinds = ["segmentation", "gro", "lro", "checksum"];
    Ok(names
        .into_iter()
        .enumerate()
        .filter(|(index, name)| active(*index) && kinds.iter().any(|kind| name.contains(kind)))
        .map(|(_, name)| name)
        .collect())
}

/// Switches the feature `feature` of interface `name` on or off. The driver may ignore the request
/// without an error, so read the state back.
pub(crate) fn switch(name: &str, feature: &str, on: bool) -> io::Result<()> {
    let (names, _) = features(name)?;
    let index = names.iter().position(|found| found == feature);
    let index = index.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
    let blocks = names.len().div_ceil(32);
    // Two words per 32 features: mask and value.
    let mut words = vec![0; 2 + MAX_FEATURES / 32 * 2];
    words[..2].copy_from_slice(&[ETHTOOL_SFEATURES, blocks as u32]);
    let bit = 1 << (index % 32);
    words[2 + index / 32 * 2] = bit;
    words[2 + index / 32 * 2 + 1] = if on { bit } else { 0 };
    ask(name, &mut words)
}

/// Returns the names of all features and their state words.
fn features(name: &str) -> io::Result<(Vec<String>, Vec<u32>)> {
    let mut count = [0; 64];
    count[0] = ETHTOOL_GSSET_INFO;
    put_u64(&mut count, 2, 1 << ETH_SS_FEATURES);
    ask(name, &mut count)?;
    let features = (count[4] as usize).min(MAX_FEATURES);

    let mut names = vec![0; 3 + MAX_FEATURES * ETH_GSTRING_LEN / 4];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, features as u32]);
    ask(name, &mut names)?;
    let names = bytes(&names);
    let names = names[12..].chunks_exact(ETH_GSTRING_LEN).take(features).map(text);

    let blocks = features.div_ceil(32);
    let mut states = vec![0; 2 + MAX_FEATURES / 32 * 4];
    states[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
    ask(name, &mut states)?;
    Ok((names.collect(), states))
}

/// Runs an ETHTOOL command; `words` starts with the command and receives the answer.
fn ask(name: &str, words: &mut [u32]) -> io::Result<()> {
    let any = sockopt::open(IpAddr::V4(Ipv4Addr::UNSPECIFIED), libc::SOCK_DGRAM, 0)?;
    // SAFETY: ifreq is plain data for which all zeros is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.bytes().any(|byte| byte == 0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `request` names the interface with a terminating zero. The kernel reads and writes
    // the structure of the command in `words`, which every caller makes longer than that and which
    // is borrowed exclusively for the call.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL as _, &mut request) };
    sockopt::check(result as c_int).map(drop)
}

fn put_u64(words: &mut [u32], at: usize, value: u64) {
    let bytes = value.to_ne_bytes();
    for (word, four) in words[at..at + 2].iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(four.try_into().expect("four bytes"));
    }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Decodes a name that ends at its first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
