//! Captures by an external witness: one timestamp per packet on the witness's clock, matched to
//! probes by packet content.

mod flows;
mod frame;
mod pcap;
mod pcapng;
mod probe;

use std::io::BufRead;

use crate::sink::Sink;
use crate::{ImportError, ImportWarning, Imported};

use flows::Flows;
use frame::{FrameError, Link};

/// Reads a libpcap capture.
pub(crate) fn read_pcap(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut witness = PacketSink::new(sink);
    pcap::read(input, &mut witness)?;
    witness.finish()
}

/// Reads a pcapng capture.
pub(crate) fn read_pcapng(input: &mut dyn BufRead, sink: Sink) -> Result<Imported, ImportError> {
    let mut witness = PacketSink::new(sink);
    pcapng::read(input, &mut witness)?;
    witness.finish()
}

/// Collects the packets that the file format readers find.
struct PacketSink<'a> {
    sink: Sink<'a>,
    flows: Flows,
    packets: u64,
    other: u64,
    fragments: u64,
    cut: u64,
    unstamped: u64,
    unknown_link: Option<u32>,
}

impl<'a> PacketSink<'a> {
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

    /// Adds a packet, which may be truncated. `at` is in nanoseconds since the epoch, or `None` if
    /// the file has no valid time.
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
            Err(FrameError::Other) => self.other += 1,
            Err(FrameError::Fragment) => self.fragments += 1,
            Err(FrameError::Cut) => self.cut += 1,
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Imported, ImportError> {
        self.flows.end(&mut self.sink)?;
        self.sink.parameter("captured_packets", self.packets);
        for (count, what) in [
            (self.other, "packets that are neither UDP nor ICMP echo"),
            (self.fragments, "packets that are later fragments of a datagram"),
            (self.cut, "packets that are truncated or malformed"),
            (self.unstamped, "packets without a timestamp"),
        ] {
            if count > 0 {
                self.sink.warn(ImportWarning::PacketsLeftOut(count, what));
            }
        }
        if let Some(link) = self.unknown_link {
            self.sink.warn(ImportWarning::UnsupportedLink(link));
        }
        self.sink.finish()
    }
}
