//! Random secrets, their text form, and comparison in constant time.

use std::fmt::Write as _;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Length of secrets and of their digests, in bytes: 256 bits.
pub(crate) const SECRET_LEN: usize = 32;

/// Returns 256 random bits from the kernel.
pub(crate) fn random() -> [u8; SECRET_LEN] {
    let mut bytes = [0; SECRET_LEN];
    let mut filled = 0;
    while filled < SECRET_LEN {
        // Fails only for flags or addresses that are not used here, or if a signal interrupts it.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or(0);
    }
    bytes
}

/// Returns the SHA-256 of a text.
pub(crate) fn digest(text: &str) -> [u8; SECRET_LEN] {
    Sha256::digest(text).into()
}

/// Compares two digests. The duration does not depend on where they differ.
pub(crate) fn equal(one: &[u8; SECRET_LEN], other: &[u8; SECRET_LEN]) -> bool {
    one.ct_eq(other).into()
}

/// Writes bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads hexadecimal digits of exactly `N` bytes.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let value = |digit: u8| (digit as char).to_digit(16);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (value(pair[0])? * 16 + value(pair[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_survive_their_text_form() {
        let secret = random();
        assert_ne!(secret, random());
        assert_eq!(from_hex(&hex(&secret)), Some(secret));
        for invalid in ["", "0", "zz", "+1", "00ff00", "é"] {
            assert_eq!(from_hex::<1>(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn digests_that_differ_in_any_bit_are_not_equal() {
        let one = digest("secret");
        assert!(equal(&one, &digest("secret")));
        for bit in 0..8 * SECRET_LEN {
            let mut other = one;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!equal(&one, &other), "bit {bit}");
        }
    }
}
