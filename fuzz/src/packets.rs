//! Fuzz targets for packet formats: parse, write again, and compare. Shared by the libFuzzer
//! targets and the smoke test of `core/wire`.

use dwell_units::Instant;
use dwell_wire::hmac::Key;
use dwell_wire::icmp::{Echo, Family};
use dwell_wire::id::{Format, detect, iperf, packet_id};
use dwell_wire::iperf2::{Client, Datagram, ServerReport, clear_len};
use dwell_wire::stamp::{Mode, Reply, Request};
use dwell_wire::text::{ACKNOWLEDGE, REQUEST, WordScanner, acknowledgement, is, is_timed_request};
use dwell_wire::{roundtrip as message, stamp as packet, timestamp, tlv};

pub(crate) fn stamp(data: &[u8]) {
    let key = Key::new(b"0123456789abcdef");
    for mode in [Mode::Unauthenticated, Mode::Authenticated] {
        if let Ok(reply) = Reply::parse(data, mode) {
            let mut again = data.to_vec();
            reply.emit(&mut again, mode);
            assert_eq!(Reply::parse(&again, mode), Ok(reply));
            let format = reply.estimate().format;
            let _ = timestamp::read(reply.t2, format, Instant::EPOCH);
        }
        if let Ok(request) = Request::parse(data, mode)
            && data.len() >= mode.base()
        {
            let mut again = data.to_vec();
            request.emit(&mut again, mode);
            assert_eq!(Request::parse(&again, mode), Ok(request));
        }
        let mut area = data.get(mode.base()..).unwrap_or(&[]).to_vec();
        let mut seen = 0;
        tlv::walk(&mut area, |tlv| seen += tlv::HEADER + tlv.value.len());
        assert!(seen <= area.len());
        let _ = tlv::verify(&key, [0; 4], &mut area);
    }
    let _ = packet::verify(&key, data);
}

pub(crate) fn roundtrip(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Ok(parsed) = message::Message::parse(data) {
        parsed.emit(&mut bytes);
        assert_eq!(bytes, data);
    }
    if message::acknowledge(&mut bytes).is_ok() {
        assert_eq!(message::acknowledge(&mut bytes), Err(dwell_wire::WireError::Mismatch));
    }
}

pub(crate) fn icmp(data: &[u8]) {
    for family in [Family::V4, Family::V6] {
        if let Ok(echo) = Echo::parse(family, data) {
            let mut again = data.to_vec();
            dwell_wire::icmp::emit_request(family, echo.id, echo.seq, &mut again);
            let request = Echo { reply: false, ..echo };
            assert_eq!(Echo::parse(family, &again), Ok(request));
        }
    }
}

pub(crate) fn text(data: &[u8]) {
    for word in [REQUEST, ACKNOWLEDGE] {
        let mut scanner = WordScanner::new(word);
        let found = data.iter().filter(|byte| scanner.take(**byte)).count();
        assert!(found * word.len() + scanner.strays as usize <= data.len());
        if is(word, data) {
            assert_eq!(found, 1);
        }
    }
    if let Some(times) = acknowledgement(data) {
        assert_eq!(times.is_none(), is(ACKNOWLEDGE, data));
    }
    assert!(!(is_timed_request(data) && is(REQUEST, data)));
}

pub(crate) fn iperf2(data: &[u8]) {
    if let Ok(datagram) = Datagram::parse(data) {
        assert_eq!(packet_id(Format::Iperf, data), Some(datagram.number()));
        assert_eq!(iperf(Format::Iperf, data), Some(datagram));
    }
    if let Ok(client) = Client::parse(data)
        && data.len() >= 128
    {
        let mut again = data.to_vec();
        client.emit(&mut again);
        assert_eq!(Client::parse(&again), Ok(client));
    }
    let clear = clear_len(data);
    let mut enciphered = data.to_vec();
    enciphered[clear..].iter_mut().for_each(|byte| *byte ^= 0xa5);
    assert_eq!(clear_len(&enciphered), clear);
    if let Ok(report) = ServerReport::parse(data) {
        let mut again = [0; ServerReport::LEN];
        report.emit(&mut again);
        let again = ServerReport::parse(&again).unwrap();
        assert_eq!((again.lost, again.datagrams), (report.lost, report.datagrams));
    }
    for format in [Format::Stamp, Format::Roundtrip, Format::Dwell] {
        let _ = packet_id(format, data);
    }
    let _ = detect(data);
}
