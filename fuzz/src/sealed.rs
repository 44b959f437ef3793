//! Fuzz target for sealed packets and streams: opening arbitrary bytes must fail; sealed bytes must
//! open exactly once. Shared by the libFuzzer target and the smoke test of `core/engine`.

use dwell_engine::relay::cipher::Key;
use dwell_engine::relay::datagram_ctr::{Prefix, SealError};
use dwell_engine::relay::datagram_gcm::{AuthenticOpener, AuthenticSealer, TRAILER_LEN};
use dwell_engine::relay::salts::{Domain, Salts, UsedSalts};
use dwell_engine::relay::stream_gcm::{Opened, RecordOpener, RecordSealer};

pub(crate) fn sealed(data: &[u8]) {
    let Some((clear, data)) = data.split_first() else { return };
    datagram(data, usize::from(*clear) % 130);
    stream(data, usize::from(*clear) % 130);
}

fn datagram(data: &[u8], clear: usize) {
    let key = Key::new([7; 16]);
    let (prefix, domain) = (Prefix::Fixed(clear), Domain::DatagramForward);
    let mut opener = AuthenticOpener::new(&key, prefix, domain);
    let mut forged = data.to_vec();
    assert!(opener.open(&mut forged, 0..data.len()).is_err());
    assert_eq!(forged, data, "a refused packet is unchanged");
    let mut sealer = AuthenticSealer::new(&key, prefix, Salts::new(domain, 5));
    let mut buffer = [data, &[0; TRAILER_LEN]].concat();
    let at = sealer.seal(&mut buffer, 0..data.len()).expect("there is room");
    let mut again = buffer.clone();
    let opened = opener.open(&mut buffer, at.clone()).expect("the packet is genuine");
    assert_eq!(&buffer[opened], data);
    assert_eq!(opener.open(&mut again, at), Err(SealError::Replayed));
}

fn stream(data: &[u8], clear: usize) {
    let key = Key::new([7; 16]);
    let domain = Domain::StreamBackward;
    let mut used = UsedSalts::default();
    let mut open = |bytes: &[u8]| {
        let (mut opener, mut out) = (RecordOpener::new(&key, clear, domain), Vec::new());
        for piece in bytes.chunks(7) {
            opener.room()[..piece.len()].copy_from_slice(piece);
            opener.received(piece.len());
            loop {
                match opener.next(|salt| used.claim(salt)).ok()? {
                    Opened::Data(payload, _) => out.extend_from_slice(payload),
                    Opened::End => return Some(out),
                    Opened::Incomplete => break,
                }
            }
        }
        opener.finish().ok().map(|()| out)
    };
    assert_eq!(open(data), None, "a forged stream is refused");
    let mut salts = Salts::new(domain, 5);
    let mut sealer = RecordSealer::new(&key, clear);
    let mut bytes = Vec::new();
    for piece in data.chunks(50) {
        sealer.room()[..piece.len()].copy_from_slice(piece);
        bytes.extend_from_slice(sealer.seal(piece.len(), || salts.draw()));
    }
    bytes.extend_from_slice(sealer.end(|| salts.draw()));
    assert_eq!(open(&bytes).as_deref(), Some(data));
    assert_eq!(open(&bytes), None, "a replayed stream is refused");
}
