//! Frames on a pipe.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::message::JobId;

/// Maximum payload length in bytes.
pub const MAX_PAYLOAD_LEN: usize = 1 << 20;

const MESSAGE: u8 = b'J';
const DATA: u8 = b'D';

/// A frame received from the pipe.
#[derive(Debug)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// A piece of the segment of a job, or of the records of a spool.
    Data(JobId, Vec<u8>),
}

/// Error while reading a frame.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The pipe failed, or ended within a frame.
    #[error("cannot read from the pipe")]
    Io(#[from] io::Error),
    /// The frame is too long.
    #[error("frame of {0} bytes exceeds the maximum of {MAX_PAYLOAD_LEN}")]
    Length(u32),
    /// The kind of the frame is unknown.
    #[error("frame of unknown kind {0:#04x}")]
    Kind(u8),
    /// The payload is not a message in JSON.
    #[error("invalid message: {text}")]
    Message {
        /// Beginning of the payload.
        text: String,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// A piece of a segment without a job number.
    #[error("piece of a segment without a job number")]
    Data,
}

/// Writes a message and flushes it.
///
/// # Errors
/// Those of `to`.
pub fn write_message<M: Serialize>(to: &mut (impl Write + ?Sized), message: &M) -> io::Result<()> {
    let payload = serde_json::to_vec(message).map_err(io::Error::other)?;
    write(to, MESSAGE, &[&payload])
}

/// Writes a piece of a segment of at most half of [`MAX_PAYLOAD_LEN`] bytes.
///
/// # Errors
/// Those of `to`.
pub fn write_data(to: &mut (impl Write + ?Sized), job: JobId, bytes: &[u8]) -> io::Result<()> {
    write(to, DATA, &[&job.0.to_le_bytes(), bytes])
}

fn write(to: &mut (impl Write + ?Sized), kind: u8, parts: &[&[u8]]) -> io::Result<()> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len > MAX_PAYLOAD_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "frame too long"));
    }
    // One write call, so that a process that is killed leaves whole frames.
    let mut frame = Vec::with_capacity(5 + len);
    frame.extend_from_slice(&(len as u32).to_le_bytes());
    frame.push(kind);
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    to.write_all(&frame)?;
    to.flush()
}

/// Reads the next frame; `None` at the end of the pipe.
///
/// # Errors
/// The pipe failed or the frame is invalid. Nothing after it can be read.
pub fn read_frame<M: for<'de> Deserialize<'de>>(
    from: &mut impl Read,
) -> Result<Option<Frame<M>>, FrameError> {
    let mut head = [0; 5];
    match from.read(&mut head[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => from.read_exact(&mut head[1..])?,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => from.read_exact(&mut head)?,
        Err(error) => return Err(error.into()),
    }
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    if len as usize > MAX_PAYLOAD_LEN {
        return Err(FrameError::Length(len));
    }
    let mut payload = vec![0; len as usize];
    from.read_exact(&mut payload)?;
    match head[4] {
        MESSAGE => {
            serde_json::from_slice(&payload).map(|m| Some(Frame::Message(m))).map_err(|source| {
                let text = String::from_utf8_lossy(&payload).chars().take(100).collect();
                FrameError::Message { text, source }
            })
        }
        DATA => {
            let (job, bytes) = payload.split_first_chunk().ok_or(FrameError::Data)?;
            Ok(Some(Frame::Data(JobId(u32::from_le_bytes(*job)), bytes.to_vec())))
        }
        kind => Err(FrameError::Kind(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Request;

    #[test]
    fn frames_round_trip() {
        let mut pipe = Vec::new();
        write_message(&mut pipe, &Request::Stop { job: JobId(7) }).unwrap();
        write_data(&mut pipe, JobId(9), b"bytes").unwrap();
        let mut from = &pipe[..];
        let first = read_frame::<Request>(&mut from).unwrap().unwrap();
        assert!(matches!(first, Frame::Message(Request::Stop { job: JobId(7) })));
        let second = read_frame::<Request>(&mut from).unwrap().unwrap();
        assert!(matches!(second, Frame::Data(JobId(9), bytes) if bytes == b"bytes"));
        assert!(read_frame::<Request>(&mut from).unwrap().is_none());
    }

    #[test]
    fn invalid_frame_is_refused_without_allocation() {
        let read = |bytes: &[u8]| read_frame::<Request>(&mut &bytes[..]);
        assert!(matches!(read(b"\xff\xff\xff\xffJ"), Err(FrameError::Length(u32::MAX))));
        assert!(matches!(read(b"\x01\x00\x00\x00Xx"), Err(FrameError::Kind(b'X'))));
        assert!(matches!(read(b"\x02\x00\x00\x00J{}"), Err(FrameError::Message { .. })));
        assert!(matches!(read(b"\x02\x00\x00\x00Dxx"), Err(FrameError::Data)));
        assert!(matches!(read(b"\x09\x00\x00\x00J{"), Err(FrameError::Io(_))));
        assert!(matches!(read(b"\x09"), Err(FrameError::Io(_))));
    }
}
