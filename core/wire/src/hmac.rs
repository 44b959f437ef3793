//! Secret keys, and HMAC-SHA-256 truncated to 16 bytes, as in STAMP's authenticated mode (RFC 8762 section 4.4).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// Length of a truncated HMAC in bytes.
pub const LEN: usize = 16;

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a key: an even number of hexadecimal digits is required, 32 to 128")]
pub struct KeyError;

/// The bytes of a key, for any algorithm. Its `Debug` output hides them.
#[derive(Clone)]
pub struct SecretKey(Box<[u8]>);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(hidden)")
    }
}

impl SecretKey {
    /// Parses hexadecimal digits. White space around them is ignored.
    ///
    /// # Errors
    /// If the text is not an even number of digits from 32 to 128.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim().as_bytes();
        if !(32..=128).contains(&digits.len()) || !digits.len().is_multiple_of(2) {
            return Err(KeyError);
        }
        let digit = |byte: u8| (byte as char).to_digit(16).map(|d| d as u8).ok_or(KeyError);
        let bytes = digits
            .chunks_exact(2)
            .map(|pair| Ok(digit(pair[0])? << 4 | digit(pair[1])?))
            .collect::<Result<_, KeyError>>()?;
        Ok(Self(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A prepared key. Its `Debug` output hides it.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Key {
    /// Creates a key from bytes.
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// Returns the truncated HMAC over the concatenated parts.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; LEN] {
        let full = self.mac(parts).finalize().into_bytes();
        full[..LEN].try_into().expect("SHA-256 has 32 bytes")
    }

    /// Whether `tag` is the truncated HMAC over the parts. Runs in constant time.
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        tag.len() == LEN && self.mac(parts).verify_truncated_left(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hmac_matches_rfc_4231() {
        // RFC 4231 test case 2, truncated to 16 bytes.
        let tag = Key::new(b"Jefe").sign(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(tag, [91, 220, 193, 70, 191, 96, 117, 78, 106, 4, 36, 38, 8, 149, 117, 199]);
    }

    #[test]
    fn keys_are_hexadecimal_and_never_shown() {
        let secret = SecretKey::from_hex(" 000102030405060708090a0b0c0d0e0f\n").unwrap();
        assert_eq!(secret.bytes(), (0..16).collect::<Vec<u8>>());
        let shown = format!("{secret:?} {:?}", Key::new(secret.bytes()));
        assert_eq!(shown, "SecretKey(hidden) Key(hidden)");
        assert!(SecretKey::from_hex("0011").is_err());
        assert!(SecretKey::from_hex(&"zz".repeat(16)).is_err());
    }

    proptest! {
        #[test]
        fn flipped_bit_is_detected(
            key in prop::collection::vec(any::<u8>(), 16..40),
            mut data in prop::collection::vec(any::<u8>(), 1..120),
            bit in any::<prop::sample::Index>(),
        ) {
            let key = Key::new(&key);
            let tag = key.sign(&[&data]);
            prop_assert!(key.verify(&[&data], &tag));
            let bit = bit.index(data.len() * 8);
            data[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!key.verify(&[&data], &tag));
        }
    }
}
