//! Encrypted streams, one direction of a connection each: the clear bytes, the initial counter
//! block of 16 random bytes, then the rest, encrypted with AES-128-CTR from that block. A stream of
//! only clear bytes has no counter block.

use super::cipher::{BLOCK, Key, Stream};

/// Bytes added to an encrypted stream.
pub const NONCE_LEN: usize = BLOCK;

/// Transformation of one direction of a connection.
#[derive(Debug)]
pub struct StreamTransform {
    /// Clear bytes that remain.
    clear: usize,
    work: State,
}

#[derive(Debug)]
enum State {
    Pass,
    /// The counter block is to be sent first.
    Announce(Key, [u8; NONCE_LEN]),
    Seal(Stream, [u8; NONCE_LEN]),
    /// The counter block is incomplete; the number of received bytes.
    Learn(Key, [u8; NONCE_LEN], usize),
    Open(Stream),
}

impl StreamTransform {
    /// Forwards the stream unchanged.
    pub fn pass() -> Self {
        Self { clear: 0, work: State::Pass }
    }

    /// Encrypts all but the first `clear` bytes, from the counter block `start`. It must be random
    /// and never be used twice with one key.
    pub fn seal(key: Key, clear: usize, start: [u8; NONCE_LEN]) -> Self {
        Self { clear, work: State::Announce(key, start) }
    }

    /// Decrypts a stream that [`StreamTransform::seal`] encrypted.
    pub fn open(key: Key, clear: usize) -> Self {
        Self { clear, work: State::Learn(key, [0; NONCE_LEN], 0) }
    }

    /// Transforms the next bytes in place. Returns three pieces to be sent in this order; each may
    /// be empty.
    pub fn work<'a>(&'a mut self, bytes: &'a mut [u8]) -> [&'a [u8]; 3] {
        if matches!(self.work, State::Pass) {
            return [bytes, &[], &[]];
        }
        let (clear, mut rest) = bytes.split_at_mut(self.clear.min(bytes.len()));
        self.clear -= clear.len();
        if rest.is_empty() {
            return [clear, &[], &[]];
        }
        let mut announced = false;
        match &mut self.work {
            State::Pass => {}
            State::Announce(key, start) => {
                announced = true;
                self.work = State::Seal(Stream::new(key, *start), *start);
            }
            State::Learn(key, start, have) => {
                let received;
                (received, rest) = rest.split_at_mut(rest.len().min(NONCE_LEN - *have));
                start[*have..*have + received.len()].copy_from_slice(received);
                *have += received.len();
                if *have == NONCE_LEN {
                    self.work = State::Open(Stream::new(key, *start));
                }
            }
            State::Seal(..) | State::Open(_) => {}
        }
        match &mut self.work {
            State::Seal(stream, start) => {
                stream.apply(rest);
                [clear, if announced { start } else { &[] }, rest]
            }
            State::Open(stream) => {
                stream.apply(rest);
                [clear, &[], rest]
            }
            _ => [clear, &[], &[]],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn through(work: &mut StreamTransform, bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        let (mut rest, mut cuts) = (bytes, cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            let mut piece = piece.to_vec();
            out.extend(work.work(&mut piece).concat());
            rest = after;
        }
        out
    }

    proptest! {
        #[test]
        fn stream_round_trips_in_any_pieces(
            bytes in prop::collection::vec(any::<u8>(), 0..400), clear in 0_usize..40,
            there in prop::collection::vec(1_usize..50, 1..9),
            back in prop::collection::vec(1_usize..50, 1..9),
        ) {
            let key = Key::new([9; BLOCK]);
            let sealed = through(&mut StreamTransform::seal(key.clone(), clear, [3; 16]), &bytes, &there);
            let longer = if bytes.len() > clear { NONCE_LEN } else { 0 };
            prop_assert_eq!(sealed.len(), bytes.len() + longer);
            prop_assert_eq!(&sealed[..clear.min(bytes.len())], &bytes[..clear.min(bytes.len())]);
            let opened = through(&mut StreamTransform::open(key, clear), &sealed, &back);
            prop_assert_eq!(opened, bytes);
        }
    }

    #[test]
    fn forwarded_stream_is_unchanged() {
        assert_eq!(through(&mut StreamTransform::pass(), b"as it is", &[3]), b"as it is");
    }
}
