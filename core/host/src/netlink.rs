//! Attributes of netlink messages (netlink(7), linux/netlink.h): 2 bytes length with this header,
//! 2 bytes type, then the value, padded to 4 bytes. Integers have the byte order of the machine.

/// Bytes of an attribute before its value.
const HEADER_LEN: usize = 4;

/// Bits of the type that are flags (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const TYPE_FLAGS: u16 = 0xc000;

/// Attributes of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    /// Adds an attribute of type `kind`. A value that is too long for an attribute is cut.
    #[must_use]
    pub fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let value = &value[..value.len().min(usize::from(u16::MAX) - HEADER_LEN)];
        self.0.extend(((HEADER_LEN + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an integer attribute of type `kind`.
    #[must_use]
    pub fn with_u32(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Returns the bytes of all attributes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the type and value of every attribute; ends at the first invalid one.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (header, after) = rest.split_first_chunk::<HEADER_LEN>()?;
        let [a, b, c, d] = *header;
        let len = usize::from(u16::from_ne_bytes([a, b])).checked_sub(HEADER_LEN)?;
        let value = after.get(..len)?;
        rest = after.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !TYPE_FLAGS, value))
    })
}

/// Returns the value of the first attribute of type `kind`.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// Reads an integer of 32 bits.
pub fn u32_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Reads a text, up to its first NUL. Invalid UTF-8 is replaced.
pub fn text_of(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_are_padded_and_found_by_type() {
        let written = Attributes::default().with(4, b"wlan0\0").with_u32(3, 7).with(60, &[]);
        assert_eq!(written.as_bytes().len(), 12 + 8 + 4);
        let read: Vec<_> = attributes(written.as_bytes()).collect();
        assert_eq!(read, [(4, &b"wlan0\0"[..]), (3, &7_u32.to_ne_bytes()), (60, &[])]);
        let found = attribute(written.as_bytes(), 3).and_then(u32_of);
        assert_eq!((found, attribute(written.as_bytes(), 5)), (Some(7), None));
        assert_eq!(text_of(b"wlan0\0junk"), "wlan0");
    }

    #[test]
    fn flags_are_not_part_of_the_type() {
        let nested = Attributes::default().with(21 | 0x8000, &[]);
        assert_eq!(attribute(nested.as_bytes(), 21), Some(&[][..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let values = attributes(&bytes).map(|(_, value)| value.len()).sum::<usize>();
            prop_assert!(values <= bytes.len());
        }
    }
}
