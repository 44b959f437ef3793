//! AES-128 in counter mode (NIST SP 800-38A section 6.5): keys and keystreams.

use aes::Aes128;
use aes::cipher::{InnerIvInit, KeyInit, StreamCipher};
use ctr::{Ctr32BE, Ctr128BE, CtrCore};
use thiserror::Error;

/// Length in bytes of a key, of a block, and of an initial counter block.
pub const BLOCK: usize = 16;

/// A key with prepared round keys. Its `Debug` output hides it.
#[derive(Clone)]
pub struct Key {
    bytes: [u8; BLOCK],
    prepared: Aes128,
}

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "not an AES-128 key: 32 hexadecimal digits are required; create one with `openssl rand -hex 16`"
)]
pub struct KeyError;

impl Key {
    /// Creates a key from its bytes.
    pub fn new(bytes: [u8; BLOCK]) -> Self {
        Self { bytes, prepared: Aes128::new(&bytes.into()) }
    }

    pub(super) const fn bytes(&self) -> &[u8; BLOCK] {
        &self.bytes
    }

    /// Parses 32 hexadecimal digits. White space around them is ignored.
    ///
    /// # Errors
    /// The text is anything else.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits: &[u8; 2 * BLOCK] = text.trim().as_bytes().try_into().map_err(|_| KeyError)?;
        let digit = |byte: u8| (byte as char).to_digit(16).map(|d| d as u8).ok_or(KeyError);
        let mut bytes = [0; BLOCK];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self::new(bytes))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// A keystream that is combined with data. In counter mode it does not depend on the data, so it
/// can be computed before the data arrives.
pub trait Keystream {
    /// Writes the keystream that starts at counter block `start` to `out`.
    fn write(&self, start: &[u8; BLOCK], out: &mut [u8]);

    /// Encrypts or decrypts `data` in place with the keystream that starts at counter block
    /// `start`.
    fn apply(&self, start: &[u8; BLOCK], data: &mut [u8]);
}

impl Keystream for Key {
    fn write(&self, start: &[u8; BLOCK], out: &mut [u8]) {
        counter(&self.prepared, start).write_keystream(out);
    }

    fn apply(&self, start: &[u8; BLOCK], data: &mut [u8]) {
        counter(&self.prepared, start).apply_keystream(data);
    }
}

/// Counter of a datagram. 32 bits suffice for the blocks of one datagram.
fn counter<'a>(key: &'a Aes128, start: &[u8; BLOCK]) -> Ctr32BE<&'a Aes128> {
    Ctr32BE::from_core(CtrCore::inner_iv_init(key, &(*start).into()))
}

/// Encryption or decryption of a stream in pieces.
pub struct Stream(Ctr128BE<Aes128>);

impl Stream {
    /// Creates a stream that starts at counter block `start`.
    pub fn new(key: &Key, start: [u8; BLOCK]) -> Self {
        Self(Ctr128BE::from_core(CtrCore::inner_iv_init(key.prepared.clone(), &start.into())))
    }

    /// Encrypts or decrypts the next bytes in place.
    pub fn apply(&mut self, data: &mut [u8]) {
        self.0.apply_keystream(data);
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream(hidden)")
    }
}

/// Name of the AES implementation on this processor, for results.
pub fn hardware() -> &'static str {
    match (aes::hardware_accelerated(), cfg!(target_arch = "aarch64")) {
        (true, true) => "armv8-ce",
        (true, false) => "aes-ni",
        (false, _) => "software",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A, F.5.1 and F.5.2 (CTR-AES128).
    const KEY: &str = "2b7e151628aed2a6abf7158809cf4f3c";
    const START: &str = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    const PLAIN: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
    const CIPHER: &str = "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
                          5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee";

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks_exact(2);
        pairs.map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
    }

    fn start() -> [u8; BLOCK] {
        bytes(START).try_into().unwrap()
    }

    #[test]
    fn nist_sp_800_38a_ctr_vectors_hold_in_any_pieces() {
        let key = Key::from_hex(KEY).unwrap();
        for (from, to) in [(PLAIN, CIPHER), (CIPHER, PLAIN)] {
            let mut data = bytes(from);
            Stream::new(&key, start()).apply(&mut data);
            assert_eq!(data, bytes(to));
            let mut data = bytes(from);
            key.apply(&start(), &mut data);
            assert_eq!(data, bytes(to));
            for piece in [1, 7, 16, 33] {
                let mut data = bytes(from);
                let mut stream = Stream::new(&key, start());
                data.chunks_mut(piece).for_each(|piece| stream.apply(piece));
                assert_eq!(data, bytes(to), "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn written_keystream_equals_the_applied_one() {
        let key = Key::from_hex(KEY).unwrap();
        let mut ahead = vec![0xa5; 64];
        key.write(&start(), &mut ahead);
        let made: Vec<u8> = bytes(PLAIN).iter().zip(&ahead).map(|(p, k)| p ^ k).collect();
        assert_eq!(made, bytes(CIPHER));
    }

    #[test]
    fn key_requires_32_hexadecimal_digits() {
        for wrong in ["", "2b7e", &KEY[1..], &format!("{KEY}00"), &KEY.replace('2', "g")] {
            assert!(Key::from_hex(wrong).is_err(), "'{wrong}'");
        }
        assert!(Key::from_hex(&format!("  {KEY}\n")).is_ok());
        assert_eq!(format!("{:?}", Key::from_hex(KEY)), "Ok(Key(hidden))");
    }
}
