//! AES-128 in Galois/counter mode (NIST SP 800-38D): authenticated encryption in place with a
//! detached tag.

use aes_gcm::{AeadInOut, Aes128Gcm, KeyInit};

use dwell_wire::hmac;

use super::cipher::Key;

/// Length of a nonce in bytes.
pub const NONCE_LEN: usize = 12;

/// Length of a tag in bytes.
pub const TAG_LEN: usize = 16;

/// Label for the key derivation of authenticated relays.
const LABEL: &[u8] = b"dwell relay aes-128-gcm";

/// A prepared key. Its `Debug` output hides it.
#[derive(Clone)]
pub struct Aead(Aes128Gcm);

/// The tag does not match these bytes, this nonce and this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not authentic")]
pub struct Unauthentic;

impl Aead {
    /// Prepares a key.
    pub fn new(key: &Key) -> Self {
        Self(Aes128Gcm::new(&(*key.bytes()).into()))
    }

    /// Derives the key of authenticated relays from a relay's key: the first 16 bytes of
    /// HMAC-SHA-256 over a label. A separate key is needed because a relay in counter mode decrypts
    /// any counter block that an attacker chooses; with the same AES key that would reveal the
    /// authentication key of this mode.
    pub fn derived(key: &Key) -> Self {
        Self::new(&Key::new(hmac::Key::new(key.bytes()).sign(&[LABEL])))
    }

    /// Encrypts `data` in place and returns the tag over it and `associated`. A nonce must never be
    /// used twice with one key.
    pub fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
    ) -> [u8; TAG_LEN] {
        let tag = self.0.encrypt_inout_detached(&(*nonce).into(), associated, data.into());
        tag.expect("a packet is shorter than 64 GiB").into()
    }

    /// Verifies the tag, then decrypts `data` in place.
    ///
    /// # Errors
    /// [`Unauthentic`]; `data` is unchanged.
    pub fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        associated: &[u8],
        data: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), Unauthentic> {
        self.0
            .decrypt_inout_detached(&(*nonce).into(), associated, data.into(), &(*tag).into())
            .map_err(|_| Unauthentic)
    }
}

impl std::fmt::Debug for Aead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aead(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 1, 2 and 4 of McGrew and Viega, "The Galois/Counter Mode of Operation", appendix
    /// B, referenced by NIST: key, nonce, associated data, plaintext, ciphertext, tag.
    const CASES: [[&str; 6]; 3] = [
        [
            "00000000000000000000000000000000",
            "000000000000000000000000",
            "",
            "",
            "",
            "58e2fccefa7e3061367f1d57a4e7455a",
        ],
        [
            "00000000000000000000000000000000",
            "000000000000000000000000",
            "",
            "00000000000000000000000000000000",
            "0388dace60b6a392f328c2b971b2fe78",
            "ab6e47d42cec13bdf53a67b21257bddf",
        ],
        [
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ],
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks_exact(2);
        pairs.map(|p| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn published_gcm_vectors_hold_in_both_directions() {
        for [key, nonce, associated, plain, cipher, tag] in CASES {
            let aead = Aead::new(&Key::from_hex(key).unwrap());
            let (nonce, associated) = (bytes(nonce).try_into().unwrap(), bytes(associated));
            let mut data = bytes(plain);
            let made = aead.seal(&nonce, &associated, &mut data);
            assert_eq!((&data, made.to_vec()), (&bytes(cipher), bytes(tag)));
            aead.open(&nonce, &associated, &mut data, &made).unwrap();
            assert_eq!(data, bytes(plain));
        }
    }

    #[test]
    fn derived_key_is_hmac_sha_256_of_the_label() {
        // printf 'dwell relay aes-128-gcm' | openssl dgst -sha256 -mac HMAC -macopt hexkey:...
        let derived = "9c483365dc04813668265d6c64022dc4";
        let key = Key::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        let seal = |aead: Aead| aead.seal(&[1; NONCE_LEN], b"clear", &mut [2; 50]);
        let expected = seal(Aead::new(&Key::from_hex(derived).unwrap()));
        assert_eq!(seal(Aead::derived(&key)), expected);
        assert_ne!(seal(Aead::new(&key)), expected);
    }

    #[test]
    fn every_flipped_bit_is_refused_and_changes_nothing() {
        let aead = Aead::new(&Key::new([3; 16]));
        let (nonce, associated) = ([5; NONCE_LEN], [6; 12]);
        let mut data = [7; 40];
        let tag = aead.seal(&nonce, &associated, &mut data);
        let parts = [NONCE_LEN, associated.len(), data.len(), TAG_LEN];
        for (part, len) in parts.into_iter().enumerate() {
            for bit in 0..8 * len {
                let flip = |n: usize, bytes: &mut [u8]| {
                    if n == part {
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                };
                let (mut nonce, mut associated, mut data, mut tag) = (nonce, associated, data, tag);
                flip(0, &mut nonce);
                flip(1, &mut associated);
                flip(2, &mut data);
                flip(3, &mut tag);
                let before = data;
                let opened = aead.open(&nonce, &associated, &mut data, &tag);
                assert_eq!((opened, data), (Err(Unauthentic), before), "part {part}, bit {bit}");
            }
        }
        assert_eq!(aead.open(&nonce, &associated, &mut data, &tag), Ok(()));
    }
}
