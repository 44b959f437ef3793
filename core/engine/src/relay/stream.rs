//! Encrypted streams, one direction of a connection each: the clear bytes, the initial counter
//! block of 16 random bytes, then the rest, encrypted with AES-128-CTR from that block. A stream of
//! only clear bytes has no counter block.

use super::cipher::{BLOCK, Key, Stream};

/// Bytes added to an encrypted stream.
pub const NONCE: usize = BLOCK;

/// Transformation of one direction of a connection.
#[derive(Debug)]
pub struct StreamWork {
    /// Clear bytes that remain.
    clear: usize,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Pass,
    /// The counter block is to be sent first.
    Announce(Key, [u8; NONCE]),
    Seal(Stream, [u8; NONCE]),
    /// The counter block is incomplete; the number of received bytes.
    Learn(Key, [u8; NONCE], usize),
    Open(Stream),
}

impl StreamWork {
    /// Forwards the stream unchanged.
    pub fn pass() -> Self {
        Self { clear: 0, work: Work::Pass }
    }

    /// Encrypts all but the first `clear` bytes, from the counter block `start`. It must be random
    /// and never be used twice with one key.
    pub fn seal(key: Key, clear: usize, start: [u8; NONCE]) -> Self {
        Self { clear, work: Work::Announce(key, start) }
    }

    /// Decrypts a stream that [`StreamWork::seal`] encrypted.
    pub fn open(key: Key, clear: usize) -> Self {
        Self { clear, work: Work::Learn(key, [0; NONCE], 0) }
    }

    /// Transforms the next bytes in place. Returns three pieces to be sent in this order; each may
    /// be empty.
    pub fn work<'a>(&'a mut self, bytes: &'a mut [u8]) -> [&'a [u8]; 3] {
        if matches!(self.work, Work::Pass) {
            return [bytes, &[], &[]];
        }
        let (clear, mut rest) = bytes.split_at_mut(self.clear.min(bytes.len()));
        self.clear -= clear.len();
        if rest.is_empty() {
            return [clear, &[], &[]];
        }
        let mut announced = false;
        match &mut self.work {
            Work::Pass => {}
            Work::Announce(key, start) => {
                announced = true;
                self.work = Work::Seal(Stream::new(key, *start), *start);
            }
            Work::Learn(key, start, have) => {
                let came;
                (came, rest) = rest.split_at_mut(rest.len().min(NONCE - *have));
                start[*have..*have + came.len()].copy_from_slice(came);
                *have += came.len();
                if *have == NONCE {
                    self.work = Work::Open(Stream::new(key, *start));
                }
            }
            Work::Seal(..) | Work::Open(_) => {}
        }
        match &mut self.work {
            Work::Seal(stream, start) => {
                stream.apply(rest);
                [clear, if announced { start } else { &[] }, rest]
            }
            Work::Open(stream) => {
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

    fn through(work: &mut StreamWork, bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
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
        fn deciphering_undoes_enciphering_however_the_stream_is_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..400), clear in 0_usize..40,
            there in prop::collection::vec(1_usize..50, 1..9),
            back in prop::collection::vec(1_usize..50, 1..9),
        ) {
            let key = Key::new([9; BLOCK]);
            let sealed = through(&mut StreamWork::seal(key.clone(), clear, [3; 16]), &bytes, &there);
            let longer = if bytes.len() > clear { NONCE } else { 0 };
            prop_assert_eq!(sealed.len(), bytes.len() + longer);
            prop_assert_eq!(&sealed[..clear.min(bytes.len())], &bytes[..clear.min(bytes.len())]);
            let opened = through(&mut StreamWork::open(key, clear), &sealed, &back);
            prop_assert_eq!(opened, bytes);
        }
    }

    #[test]
    fn a_stream_that_is_passed_on_is_not_touched() {
        assert_eq!(through(&mut StreamWork::pass(), b"as it is", &[3]), b"as it is");
    }
}
