//! Detects the format of a file by its content.

use crate::{Format, ImportError, itg};

/// Number of bytes that [`detect`] examines.
pub const HEAD_LEN: usize = 65_536;

/// Returns the format of a file given its first [`HEAD_LEN`] bytes, or all bytes of a shorter file.
pub fn detect(head: &[u8]) -> Option<Format> {
    let head = &head[..head.len().min(HEAD_LEN)];
    // Only one test can match, unless a text quotes another format: then the beginning of the file
    // decides.
    by_magic(head).or_else(|| by_first_line(head)).or_else(|| by_words(head))
}

/// Like [`detect`], but fails with an error that lists the known formats.
pub fn recognise(head: &[u8]) -> Result<Format, ImportError> {
    detect(head).ok_or_else(|| ImportError::Unknown { hint: hint(head) })
}

fn by_magic(head: &[u8]) -> Option<Format> {
    match head.first_chunk()? {
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xd4, 0xc3, 0xb2, 0xa1] => Some(Format::Pcap),
        [0xa1, 0xb2, 0x3c, 0x4d] | [0x4d, 0x3c, 0xb2, 0xa1] => Some(Format::Pcap),
        [0x0a, 0x0d, 0x0d, 0x0a] => Some(Format::Pcapng),
        _ => itg::plausible(head).then_some(Format::Itg),
    }
}

fn by_first_line(head: &[u8]) -> Option<Format> {
    let line = first_line(head).trim_ascii_end();
    if line == b"id,roundtrip_time [s]" {
        return Some(Format::RoundTripCsv);
    }
    if line.starts_with(b"id,state,reordered,void") {
        return Some(Format::DwellCsv);
    }
    if head.trim_ascii_start().starts_with(b"{") { by_keys(head) } else { None }
}

/// Distinguishes JSON formats by keys that only one program writes.
fn by_keys(head: &[u8]) -> Option<Format> {
    let has = |words: &[&[u8]]| words.iter().all(|word| contains(head, word));
    // Each line of `iperf3 --json-stream` is a separate object.
    let is_stream = contains(first_line(head), b"\"event\"");
    match () {
        () if has(&[b"\"irtt\"", b"\"json_format\""]) => Some(Format::Irtt),
        () if has(&[b"\"report\"", b"\"mtr\"", b"\"hubs\""]) => Some(Format::Mtr),
        () if has(&[b"\"start\"", b"\"version\"", b"\"iperf 3"]) && !is_stream => {
            Some(Format::Iperf3)
        }
        () => None,
    }
}

fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

fn by_words(head: &[u8]) -> Option<Format> {
    let starts = |word: &[u8]| starts(head, word);
    if starts(b"packet, txTime(sec), rxTime(sec)") {
        return Some(Format::Sockperf);
    }
    let iperf = starts(b"Client connecting to ") || starts(b"Server listening on ");
    if iperf && starts(b"[ ID] Interval") && contains(head, b"Bandwidth") {
        return Some(Format::Iperf2);
    }
    let numbered = contains(head, b"icmp_seq=") || contains(head, b": seq=");
    let echoes = contains(head, b" bytes from ") && numbered;
    (starts(b"PING ") || echoes).then_some(Format::Ping)
}

/// Returns advice on an unknown file, or an empty string.
fn hint(head: &[u8]) -> &'static str {
    match head {
        [] => " (it is empty)",
        [0x1f, 0x8b, ..] => " (it is compressed: unpack it with gunzip first)",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => " (it is compressed: unpack it with zstd -d first)",
        // Windows prints `TTL=` in every language; other programs print `ttl=`.
        _ if contains(head, b"ms TTL=") => {
            " (it looks like the output of Windows ping, which has whole milliseconds and no \
             sequence numbers: use dwell ping, or import a packet capture)"
        }
        _ if contains(head, b"\"iperf 3") && contains(first_line(head), b"\"event\"") => {
            " (it looks like iperf3 --json-stream: run iperf3 with -J only)"
        }
        _ if starts(head, b"Connecting to host ") && contains(head, b"Bitrate") => {
            " (it looks like the text output of iperf3: run iperf3 with -J)"
        }
        _ if contains(head, b"sockperf:") => {
            " (it looks like sockperf output without observations)"
        }
        _ => "",
    }
}

/// Whether a line of the text starts with `word`.
fn starts(text: &[u8], word: &[u8]) -> bool {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| line.starts_with(word))
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_file_error_lists_all_formats() {
        let error = recognise(b"time,delay\n1,2\n").unwrap_err().to_string();
        for format in Format::ALL {
            assert!(error.contains(format.name()), "{error}");
        }
        assert!(error.contains("unknown format") && error.contains("segment"), "{error}");
        let empty = recognise(b"sockperf: == version #3.7\n").unwrap_err().to_string();
        assert!(empty.contains("without observations"), "{empty}");
        let packed = recognise(&[0x1f, 0x8b, 8, 0]).unwrap_err().to_string();
        assert!(packed.contains("gunzip"), "{packed}");
        assert!(recognise(b"").unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn beginning_of_a_text_decides_its_format() {
        let text = b"id,roundtrip_time [s]\n         0,0.000000001\nPING ::1(::1) 56 data bytes\n";
        assert_eq!(detect(text), Some(Format::RoundTripCsv));
    }
}
