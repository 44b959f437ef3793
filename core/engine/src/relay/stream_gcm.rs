//! Authenticated streams, one direction of a connection each: a salt (8 bytes), then records.
//! `docs/relay.md` describes the format.
//!
//! | bytes | content |
//! |---|---|
//! | 2 | bytes of payload, 1 to 16,384; 0 ends the stream; 0x8000: the payload is the next salt |
//! | n | the payload: its clear bytes, then the encrypted rest |
//! | 16 | tag |
//!
//! The nonce of a record is the salt and the number of the record, which is not sent. A missing,
//! duplicated or reordered record therefore does not authenticate. Length and clear bytes are
//! associated data.

use std::fmt;
use std::ops::Range;

use super::aead::{Aead, TAG_LEN};
use super::cipher::Key;
use super::datagram_gcm::nonce;
use super::salts::{Domain, SALT_LEN};

/// Maximum payload of a record.
pub const MAX_PAYLOAD: usize = 16 * 1_024;

/// Bytes of a record besides its payload.
pub const RECORD_OVERHEAD: usize = HEAD_LEN + TAG_LEN;

const HEAD_LEN: usize = 2;

/// Head of the last record of a stream.
const END: u16 = 0;

/// Head of a record that carries the next salt.
const REKEY: u16 = 0x8000;

/// Maximum length of a record in bytes.
const MAX_RECORD: usize = MAX_PAYLOAD + RECORD_OVERHEAD;

/// Maximum number of bytes before a data record: the first salt and a change of salt.
const MAX_PREFIX_LEN: usize = SALT_LEN + SALT_LEN + RECORD_OVERHEAD;

/// Reason why a stream ends before its end record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// A record is not authentic: changed, missing, duplicated, reordered, or sealed with another
    /// key.
    #[error("a record is not authentic")]
    Unauthentic,
    /// The stream was accepted before.
    #[error("the stream is a replay")]
    Replayed,
    /// The connection ended without an end record.
    #[error("the stream was cut off")]
    Truncated,
}

/// Nonce of the next record: salt and record number.
#[derive(Clone, Copy, Debug)]
struct Position {
    salt: u64,
    record: u32,
}

impl Position {
    const fn start(salt: u64) -> Self {
        Self { salt, record: 0 }
    }

    /// Whether the next record must be a change of salt.
    const fn is_last(self) -> bool {
        self.record == u32::MAX
    }
}

/// Seals one direction of a connection.
pub struct RecordSealer {
    aead: Aead,
    /// Payload bytes that remain to be sent in clear.
    clear: usize,
    position: Option<Position>,
    buffer: Box<[u8]>,
}

impl RecordSealer {
    /// Creates a sealer that leaves the first `clear` bytes of the stream readable.
    pub fn new(key: &Key, clear: usize) -> Self {
        let buffer = vec![0; MAX_PREFIX_LEN + MAX_RECORD].into_boxed_slice();
        Self { aead: Aead::derived(key), clear, position: None, buffer }
    }

    /// Buffer for the payload of the next record.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[MAX_PREFIX_LEN + HEAD_LEN..][..MAX_PAYLOAD]
    }

    /// Seals the first `len` bytes of [`RecordSealer::room`] and returns the bytes to send. `draw`
    /// returns a salt that was never used.
    ///
    /// # Panics
    /// If `len` is 0 or above [`MAX_PAYLOAD`].
    pub fn seal(&mut self, len: usize, draw: impl FnMut() -> u64) -> &[u8] {
        assert!((1..=MAX_PAYLOAD).contains(&len), "a record has 1 to 16,384 bytes");
        self.record(len as u16, len, draw)
    }

    /// Returns the bytes that end the stream.
    pub fn end(&mut self, draw: impl FnMut() -> u64) -> &[u8] {
        self.record(END, 0, draw)
    }

    fn record(&mut self, head: u16, len: usize, mut draw: impl FnMut() -> u64) -> &[u8] {
        let mut start = MAX_PREFIX_LEN;
        let begins = self.position.is_none();
        let mut position = *self.position.get_or_insert_with(|| Position::start(draw()));
        let first_salt = position.salt;
        if position.is_last() {
            let next = draw();
            start -= SALT_LEN + RECORD_OVERHEAD;
            let payload = start + HEAD_LEN;
            self.buffer[payload..payload + SALT_LEN].copy_from_slice(&next.to_be_bytes());
            let rekey = &mut self.buffer[start..MAX_PREFIX_LEN];
            seal_record(&self.aead, position, REKEY, 0, rekey);
            position = Position::start(next);
        }
        let clear = self.clear.min(len);
        self.clear -= clear;
        let end = MAX_PREFIX_LEN + len + RECORD_OVERHEAD;
        seal_record(&self.aead, position, head, clear, &mut self.buffer[MAX_PREFIX_LEN..end]);
        position.record += 1;
        self.position = Some(position);
        if begins {
            start -= SALT_LEN;
            self.buffer[start..start + SALT_LEN].copy_from_slice(&first_salt.to_be_bytes());
        }
        &self.buffer[start..end]
    }
}

/// Seals a record whose payload is already in place.
fn seal_record(aead: &Aead, position: Position, head: u16, clear: usize, record: &mut [u8]) {
    record[..HEAD_LEN].copy_from_slice(&head.to_be_bytes());
    let tag_at = record.len() - TAG_LEN;
    let (sealed, tag) = record.split_at_mut(tag_at);
    let (associated, data) = sealed.split_at_mut(HEAD_LEN + clear);
    tag.copy_from_slice(&aead.seal(&nonce(position.salt, position.record), associated, data));
}

impl fmt::Debug for RecordSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordSealer").field("clear", &self.clear).finish_non_exhaustive()
    }
}

/// Opens one direction of a connection.
pub struct RecordOpener {
    aead: Aead,
    domain: Domain,
    /// Payload bytes that are still clear.
    clear: usize,
    position: Option<Position>,
    /// Whether the current salt has been claimed by an authentic record.
    is_claimed: bool,
    has_ended: bool,
    buffer: Box<[u8]>,
    /// Bytes received and not yet opened.
    unread: Range<usize>,
}

/// An opened record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// Payload, and length of the record in bytes.
    Data(&'a [u8], usize),
    /// The stream has ended. Bytes after it are not part of it.
    End,
    /// More bytes are needed.
    Incomplete,
}

impl RecordOpener {
    /// Creates an opener for a stream that was sealed with the same `key` and `clear`.
    pub fn new(key: &Key, clear: usize, domain: Domain) -> Self {
        Self {
            aead: Aead::derived(key),
            domain,
            clear,
            position: None,
            is_claimed: false,
            has_ended: false,
            buffer: vec![0; 2 * MAX_RECORD].into_boxed_slice(),
            unread: 0..0,
        }
    }

    /// Buffer for the next bytes of the stream. Never empty once [`RecordOpener::next`] has
    /// returned [`Opened::Incomplete`].
    pub fn room(&mut self) -> &mut [u8] {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        &mut self.buffer[self.unread.end..]
    }

    /// Records that `len` bytes were received into [`RecordOpener::room`].
    pub fn received(&mut self, len: usize) {
        self.unread.end = (self.unread.end + len).min(self.buffer.len());
    }

    /// Opens the next record. `claim` is called for every new salt once its first record is known
    /// to be authentic, and marks it as used. It returns `false` if the salt was used before.
    ///
    /// # Errors
    /// Nothing more of this stream may be delivered.
    pub fn next(&mut self, mut claim: impl FnMut(u64) -> bool) -> Result<Opened<'_>, StreamError> {
        loop {
            if self.has_ended {
                return Ok(Opened::End);
            }
            let Some(position) = self.position()? else { return Ok(Opened::Incomplete) };
            let Some((head, len)) = self.head()? else { return Ok(Opened::Incomplete) };
            let size = len + RECORD_OVERHEAD;
            if self.unread.len() < size {
                return Ok(Opened::Incomplete);
            }
            let at = self.unread.start;
            let clear = if head == REKEY { 0 } else { self.clear.min(len) };
            let (sealed, tag) = self.buffer[at..at + size].split_at_mut(HEAD_LEN + len);
            let tag = tag.first_chunk().expect("a record has a tag");
            let (associated, data) = sealed.split_at_mut(HEAD_LEN + clear);
            let nonce = nonce(position.salt, position.record);
            self.aead.open(&nonce, associated, data, tag).map_err(|_| StreamError::Unauthentic)?;
            if !self.is_claimed && !claim(position.salt) {
                return Err(StreamError::Replayed);
            }
            self.is_claimed = true;
            self.unread.start += size;
            let payload = at + HEAD_LEN..at + HEAD_LEN + len;
            match head {
                REKEY => {
                    let salt = self.buffer[payload].first_chunk().expect("8 bytes");
                    self.begin(u64::from_be_bytes(*salt))?;
                }
                END => self.has_ended = true,
                _ => {
                    // A sealer changes the salt before this record, so a genuine stream never
                    // contains it.
                    let record = position.record.checked_add(1).ok_or(StreamError::Unauthentic)?;
                    self.position = Some(Position { record, ..position });
                    self.clear -= clear;
                    return Ok(Opened::Data(&self.buffer[payload], size));
                }
            }
        }
    }

    /// Checks that the stream is complete when the connection ends.
    ///
    /// # Errors
    /// [`StreamError::Truncated`] if the end record has not been received.
    pub fn finish(&self) -> Result<(), StreamError> {
        if self.has_ended { Ok(()) } else { Err(StreamError::Truncated) }
    }

    /// Nonce of the next record; `None` until the salt is complete.
    fn position(&mut self) -> Result<Option<Position>, StreamError> {
        if self.position.is_none() {
            let Some(salt) = self.buffer[self.unread.clone()].first_chunk() else {
                return Ok(None);
            };
            let salt = u64::from_be_bytes(*salt);
            self.begin(salt)?;
            self.unread.start += SALT_LEN;
        }
        Ok(self.position)
    }

    fn begin(&mut self, salt: u64) -> Result<(), StreamError> {
        if !self.domain.has(salt) {
            return Err(StreamError::Unauthentic);
        }
        self.position = Some(Position::start(salt));
        self.is_claimed = false;
        Ok(())
    }

    /// Head and payload length of the next record; `None` until its head is complete.
    fn head(&self) -> Result<Option<(u16, usize)>, StreamError> {
        let Some(head) = self.buffer[self.unread.clone()].first_chunk() else { return Ok(None) };
        let head = u16::from_be_bytes(*head);
        match (head, usize::from(head)) {
            (REKEY, _) => Ok(Some((head, SALT_LEN))),
            (_, len @ 0..=MAX_PAYLOAD) => Ok(Some((head, len))),
            _ => Err(StreamError::Unauthentic),
        }
    }
}

impl fmt::Debug for RecordOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordOpener").field("unread", &self.unread).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::salts::{Salts, UsedSalts};
    use super::*;

    const DOMAIN: Domain = Domain::StreamForward;

    fn key() -> Key {
        Key::new([9; 16])
    }

    /// Seals a stream whose first record has the number `from`. Returns its salt and its records,
    /// the end record last.
    fn sealed(pieces: &[Vec<u8>], clear: usize, from: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut salts = Salts::new(DOMAIN, 77);
        let mut sealer = RecordSealer::new(&key(), clear);
        let first = salts.draw();
        if from > 0 {
            sealer.position = Some(Position { salt: first, record: from });
        }
        let mut given = (from == 0).then_some(first);
        let mut draw = move || given.take().unwrap_or_else(|| salts.draw());
        let mut records = Vec::new();
        for piece in pieces {
            sealer.room()[..piece.len()].copy_from_slice(piece);
            records.push(sealer.seal(piece.len(), &mut draw).to_vec());
        }
        records.push(sealer.end(&mut draw).to_vec());
        if from > 0 {
            return (first.to_be_bytes().to_vec(), records);
        }
        let rest = records[0].split_off(SALT_LEN);
        (std::mem::replace(&mut records[0], rest), records)
    }

    /// Opens a stream that arrives in pieces of these lengths. Returns the delivered bytes and how
    /// the stream ended.
    fn opened(
        bytes: &[u8],
        clear: usize,
        cuts: &[usize],
        from: u32,
        used: &mut UsedSalts,
    ) -> (Vec<u8>, Result<(), StreamError>) {
        let mut opener = RecordOpener::new(&key(), clear, DOMAIN);
        let (mut rest, mut cuts, mut out) = (bytes, cuts.iter().cycle(), Vec::new());
        loop {
            loop {
                if from > 0 && opener.position.is_none() && opener.unread.len() >= SALT_LEN {
                    opener.position().unwrap();
                    opener.position.as_mut().unwrap().record = from;
                }
                match opener.next(|salt| used.claim(salt)) {
                    Ok(Opened::Data(payload, size)) => {
                        assert_eq!(size, payload.len() + RECORD_OVERHEAD);
                        out.extend_from_slice(payload);
                    }
                    Ok(Opened::End) => return (out, opener.finish()),
                    Ok(Opened::Incomplete) => break,
                    Err(error) => return (out, Err(error)),
                }
            }
            if rest.is_empty() {
                return (out, opener.finish());
            }
            let room = opener.room();
            assert!(!room.is_empty());
            let len = rest.len().min(*cuts.next().unwrap()).min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            opener.received(len);
            rest = &rest[len..];
        }
    }

    fn open_once(bytes: &[u8], clear: usize) -> (Vec<u8>, Result<(), StreamError>) {
        opened(bytes, clear, &[100_000], 0, &mut UsedSalts::default())
    }

    proptest! {
        #[test]
        fn stream_round_trips_in_any_pieces(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..12),
            clear in 0_usize..400, cuts in prop::collection::vec(1_usize..70, 1..9),
        ) {
            let (salt, records) = sealed(&pieces, clear, 0);
            let bytes = [salt, records.concat()].concat();
            let used = &mut UsedSalts::default();
            let plain = pieces.concat();
            prop_assert_eq!(opened(&bytes, clear, &cuts, 0, used), (plain, Ok(())));
            let again = opened(&bytes, clear, &cuts, 0, used);
            prop_assert_eq!(again, (Vec::new(), Err(StreamError::Replayed)));
        }

        #[test]
        fn changed_stream_delivers_nothing_from_the_change_on(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..60), 1..6),
            clear in 0_usize..40, bit in any::<prop::sample::Index>(),
        ) {
            let (salt, records) = sealed(&pieces, clear, 0);
            let mut bytes = [salt, records.concat()].concat();
            let bit = bit.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (delivered, end) = open_once(&bytes, clear);
            prop_assert!(matches!(end, Err(StreamError::Unauthentic | StreamError::Truncated)));
            let mut before = SALT_LEN;
            let whole = pieces.iter().take_while(|piece| {
                before += piece.len() + RECORD_OVERHEAD;
                before <= bit / 8
            });
            prop_assert_eq!(delivered, whole.flatten().copied().collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_refused_without_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..400), clear in 0_usize..40
        ) {
            let (delivered, end) = open_once(&bytes, clear);
            prop_assert!(delivered.is_empty() && end.is_err());
        }
    }

    #[test]
    fn cut_swapped_or_duplicated_stream_is_refused() {
        let pieces: Vec<Vec<u8>> = (0..4_u8).map(|n| vec![n; 50]).collect();
        let (salt, records) = sealed(&pieces, 12, 0);
        let of = |order: &[usize]| {
            let records: Vec<_> = order.iter().map(|n| records[*n].clone()).collect();
            open_once(&[salt.clone(), records.concat()].concat(), 12)
        };
        let whole = |n: usize| pieces[..n].concat();
        assert_eq!(of(&[0, 1, 2, 3, 4]), (whole(4), Ok(())));
        assert_eq!(of(&[0, 1, 2, 3]), (whole(4), Err(StreamError::Truncated)), "no end record");
        assert_eq!(of(&[]), (whole(0), Err(StreamError::Truncated)), "a salt alone");
        assert_eq!(open_once(&[], 12), (whole(0), Err(StreamError::Truncated)), "nothing at all");
        for (order, delivered) in [
            (&[0, 2, 1, 3, 4][..], 1),
            (&[0, 1, 1, 2, 3, 4], 2),
            (&[0, 1, 3, 4], 2),
            (&[1, 2, 3, 4], 0),
            (&[0, 4], 1),
        ] {
            assert_eq!(of(order), (whole(delivered), Err(StreamError::Unauthentic)), "{order:?}");
        }
        let bytes = [salt.clone(), records.concat()].concat();
        let cut = open_once(&bytes[..bytes.len() - 1], 12);
        assert_eq!(cut, (whole(4), Err(StreamError::Truncated)), "in the end record");
    }

    #[test]
    fn stream_of_the_other_direction_is_refused() {
        let (_, records) = sealed(&[vec![1; 10]], 0, 0);
        let back = Salts::new(Domain::StreamBackward, 77).draw().to_be_bytes();
        let (delivered, end) = open_once(&[&back[..], &records.concat()].concat(), 0);
        assert_eq!((delivered, end), (Vec::new(), Err(StreamError::Unauthentic)));
    }

    #[test]
    fn salt_changes_before_the_record_number_wraps() {
        let pieces: Vec<Vec<u8>> = (0..6_u8).map(|n| vec![n; 20]).collect();
        let from = u32::MAX - 2;
        let (salt, records) = sealed(&pieces, 30, from);
        let lens: Vec<_> = records.iter().map(Vec::len).collect();
        let plain = 20 + RECORD_OVERHEAD;
        let changing = plain + SALT_LEN + RECORD_OVERHEAD;
        assert_eq!(lens, [plain, plain, changing, plain, plain, plain, RECORD_OVERHEAD]);
        let bytes = [salt, records.concat()].concat();
        let used = &mut UsedSalts::default();
        assert_eq!(opened(&bytes, 30, &[7], from, used), (pieces.concat(), Ok(())));
        let both = [0, 1].map(|n| used.claim(Domain::StreamForward as u64 * (1 << 62) + 77 + n));
        assert_eq!(both, [false, false], "both salts are used now");
    }
}
