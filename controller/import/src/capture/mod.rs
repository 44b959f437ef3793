//! Captures as an outside witness: a stamp per packet on the witness's clock, joined to probes by
//! what stands in them.

mod flows;
mod frame;
mod pcap;
mod pcapng;
mod probe;

use std::io::BufRead;

use crate::sink::Sink;
use crate::{ImportError, Imported};

use flows::Flows;
use frame::{Link, NotTaken};

/// Reads a capture of libpcap.
pub(crate) fn read_pcap(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut witness = Witness::new(sink);
    pcap::read(input, &mut witness)?;
    witness.finish()
}

/// Reads a capture in the pcapng format.
pub(crate) fn read_pcapng(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut witness = Witness::new(sink);
    pcapng::read(input, &mut witness)?;
    witness.finish()
}

/// Takes packets as the file formats find them.
struct Witness<'a> {
    sink: Sink<'a>,
    flows: Flows,
    packets: u64,
    other: u64,
    fragments: u64,
    cut: u64,
    unstamped: u64,
    unknown_link: Option<u32>,
}

impl<'a> Witness<'a> {
    fn new(sink: Sink<'a>) -> Self {
        Self {
            sink,
            flows: Flows::default(),
            packets: 0,
            other: 0,
            fragments: 0,
            cut: 0,
            unstamped: 0,
            unknown_link: None,
        }
    }

    /// Takes a packet as it was on the wire, or the beginning of it; `at` is nanoseconds since the
    /// epoch, `None` where the file has no credible time.
    fn packet(&mut self, link: u32, at: Option<i64>, bytes: &[u8]) -> Result<(), ImportError> {
        self.packets += 1;
        let Some(at) = at else {
            self.unstamped += 1;
            return Ok(());
        };
        let Some(known) = Link::of(link) else {
            self.unknown_link = Some(link);
            self.sink.skip(self.packets, bytes);
            return Ok(());
        };
        match frame::datagram(known, bytes) {
            Ok(datagram) => {
                if !self.flows.take(&datagram, at, &mut self.sink)? {
                    self.sink.skip(self.packets, bytes);
                }
            }
            Err(NotTaken::Other) => self.other += 1,
            Err(NotTaken::Fragment) => self.fragments += 1,
            Err(NotTaken::Cut) => self.cut += 1,
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.flows.end(&mut self.sink)?;
        self.sink.parameter("captured_packets", self.packets);
        for (count, what) in [
            (self.other, "packets are neither UDP nor ICMP echo over IP"),
            (self.fragments, "packets are later fragments of a datagram"),
            (self.cut, "packets were captured too short or are broken"),
            (self.unstamped, "packets have no time"),
        ] {
            if count > 0 {
                self.sink.warn(format!("{count} {what}; they were left out"));
            }
        }
        if let Some(link) = self.unknown_link {
            self.sink.warn(format!("packets of link type {link} cannot be read"));
        }
        self.sink.finish()
    }
}
