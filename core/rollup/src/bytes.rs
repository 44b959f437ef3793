//! Primitive values in records: little-endian integers, variable-length integers (LEB128, signed
//! ones zigzag) and short texts. Reading is total: `None` for bytes that are not the value.

use crate::name::Name;

/// Appends an unsigned integer of variable length.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer of variable length.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a 64-bit integer.
pub(crate) fn put_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a name behind its length.
pub(crate) fn put_name(out: &mut Vec<u8>, name: &Name) {
    out.push(name.as_str().len() as u8);
    out.extend_from_slice(name.as_str().as_bytes());
}

/// The unread input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // Ten bytes hold 70 bits, so the last byte may use only one.
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // One encoding per value.
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(crate) fn name(&mut self) -> Option<Name> {
        let len = self.byte()?;
        std::str::from_utf8(self.take(len.into())?).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_encoding_each() {
        for value in [0, 1, 127, 128, 300, u64::MAX / 2, u64::MAX] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut reader = Reader(&out);
            assert_eq!(reader.unsigned(), Some(value));
            assert_eq!(reader.signed(), Some(value as i64));
            assert!(reader.is_empty());
        }
        assert_eq!(Reader(&[0x80, 0]).unsigned(), None, "a longer form of 0");
        assert_eq!(Reader(&[0xff; 11]).unsigned(), None);
        assert_eq!(Reader(&[0x80]).unsigned(), None);
    }
}
