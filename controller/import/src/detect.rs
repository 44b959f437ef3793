//! The format of a file, told by its content.

use crate::{Format, ImportError, itg};

/// Bytes of a file that [`detect`] looks at.
pub const HEAD: usize = 65_536;

/// Tells the format of a file by its first [`HEAD`] bytes (or all, when it has fewer).
pub fn detect(head: &[u8]) -> Option<Format> {
    let head = &head[..head.len().min(HEAD)];
    // No two of these can be true at a time, except that a text may quote another: what a file
    // begins with is stronger than what stands in it.
    by_magic(head).or_else(|| by_first_line(head)).or_else(|| by_words(head))
}

/// As [`detect`], with the error that lists what is known.
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
    let line = head.split(|byte| *byte == b'\n').next()?.trim_ascii_end();
    if line == b"id,roundtrip_time [s]" {
        return Some(Format::S4Csv);
    }
    if line.starts_with(b"id,state,reordered,void") {
        return Some(Format::DwellCsv);
    }
    let object = head.trim_ascii_start().starts_with(b"{");
    (object && contains(head, b"\"irtt\"") && contains(head, b"\"json_format\""))
        .then_some(Format::Irtt)
}

fn by_words(head: &[u8]) -> Option<Format> {
    let starts = |word: &[u8]| {
        head.starts_with(word) || {
            let mut lines = head.split(|byte| *byte == b'\n');
            lines.any(|line| line.starts_with(word))
        }
    };
    if starts(b"packet, txTime(sec), rxTime(sec)") {
        return Some(Format::Sockperf);
    }
    let iperf = starts(b"Client connecting to ") || starts(b"Server listening on ");
    if iperf && starts(b"[ ID] Interval") && contains(head, b"Bandwidth") {
        return Some(Format::Iperf2);
    }
    let echoes = contains(head, b" bytes from ") && contains(head, b"icmp_seq=");
    (starts(b"PING ") || echoes).then_some(Format::Ping)
}

/// What an unknown file may be, where that tells the user what to do.
fn hint(head: &[u8]) -> &'static str {
    match head {
        [] => " (it is empty)",
        [0x1f, 0x8b, ..] => " (it is compressed: unpack it with gunzip first)",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => " (it is compressed: unpack it with zstd -d first)",
        _ if contains(head, b"sockperf:") => " (it looks like sockperf, but holds no observation)",
        _ => "",
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_file_is_refused_with_all_that_is_known() {
        let error = recognise(b"time,delay\n1,2\n").unwrap_err().to_string();
        for format in Format::ALL {
            assert!(error.contains(format.name()), "{error}");
        }
        assert!(error.contains("not known") && error.contains("segment"), "{error}");
        let empty = recognise(b"sockperf: == version #3.7\n").unwrap_err().to_string();
        assert!(empty.contains("no observation"), "{empty}");
        let packed = recognise(&[0x1f, 0x8b, 8, 0]).unwrap_err().to_string();
        assert!(packed.contains("gunzip"), "{packed}");
        assert!(recognise(b"").unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn a_text_that_quotes_another_format_is_what_it_begins_with() {
        let text = b"id,roundtrip_time [s]\n         0,0.000000001\nPING ::1(::1) 56 data bytes\n";
        assert_eq!(detect(text), Some(Format::S4Csv));
    }
}
