//! Limits of connections: their number, and peers that vanished or never read.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 4096;

/// Maximum number of connections of one remote address. Loopback is exempt: a proxy brings everyone
/// from there.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 512;

/// Descriptors kept for files, pipes and child processes.
const RESERVED_DESCRIPTORS: u64 = 256;

/// A peer that acknowledges no byte for this long has vanished, or does not read.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Idle time after which the kernel asks whether the peer still exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Counts connections, and closes new ones beyond the limits.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    counts: Arc<Mutex<Counts>>,
    max: usize,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    remote: HashMap<IpAddr, usize>,
}

impl Gate {
    /// Raises the limit of descriptors as far as needed and permitted, and returns a gate that stays
    /// below it.
    pub(crate) fn new() -> Self {
        let wanted = MAX_CONNECTIONS as u64 + RESERVED_DESCRIPTORS;
        let limit = getrlimit(Resource::Nofile);
        let raised = limit.maximum.map_or(wanted, |hard| hard.min(wanted));
        if limit.current.is_some_and(|soft| soft < raised) {
            let limit = Rlimit { current: Some(raised), maximum: limit.maximum };
            // The limit that is in force then decides.
            let _ = setrlimit(Resource::Nofile, limit);
        }
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let max = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(16);
        let max = usize::try_from(max).unwrap_or(usize::MAX).min(MAX_CONNECTIONS);
        Self { counts: Arc::default(), max }
    }

    /// Takes a place for a connection; `None` if all are taken.
    fn enter(&self, peer: IpAddr) -> Option<Place> {
        let peer = peer.to_canonical();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= self.max {
            return None;
        }
        let remote = !peer.is_loopback();
        if remote {
            let of = counts.remote.entry(peer).or_default();
            if *of >= MAX_CONNECTIONS_PER_ADDRESS {
                return None;
            }
            *of += 1;
        }
        counts.all += 1;
        Some(Place { counts: self.counts.clone(), remote: remote.then_some(peer) })
    }
}

/// The place of one connection, free again when dropped.
#[derive(Debug)]
struct Place {
    counts: Arc<Mutex<Counts>>,
    remote: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all -= 1;
        let Some(peer) = self.remote else { return };
        let of = counts.remote.entry(peer).or_default();
        *of = of.saturating_sub(1);
        if *of == 0 {
            counts.remote.remove(&peer);
        }
    }
}

impl<S> Accept<TcpStream, S> for Gate {
    type Stream = Connection;
    type Service = S;
    type Future = std::future::Ready<io::Result<(Connection, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = stream.peer_addr().and_then(|peer| {
            let full = || io::Error::other("too many connections");
            let place = self.enter(peer.ip()).ok_or_else(full)?;
            stream.set_nodelay(true)?;
            let timeout = UNREAD_TIMEOUT.as_millis().try_into().unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(&stream, timeout)?;
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
            Ok((Connection { stream, _place: place }, service))
        });
        std::future::ready(accepted)
    }
}

/// A connection that occupies a place.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _place: Place,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_free_again() {
        let gate = Gate { counts: Arc::default(), max: MAX_CONNECTIONS_PER_ADDRESS + 2 };
        let (one, two) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let enter = |peer| gate.enter(peer);
        let mut places: Vec<_> = (0..MAX_CONNECTIONS_PER_ADDRESS).map(|_| enter(one)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(enter(one).is_none(), "one address cannot take all places");
        places.push(enter(two));
        places.push(enter(IpAddr::from([127, 0, 0, 1])));
        assert!(places.iter().all(Option::is_some));
        assert!(enter(two).is_none(), "all places are taken");
        places.clear();
        assert!(enter(one).is_some());
        assert!(gate.counts.lock().unwrap().remote.is_empty());
    }

    #[test]
    fn loopback_may_take_more_than_one_address() {
        let gate = Gate { counts: Arc::default(), max: 2 * MAX_CONNECTIONS_PER_ADDRESS };
        let local = IpAddr::from([127, 0, 0, 1]);
        let places: Vec<_> = (0..gate.max).filter_map(|_| gate.enter(local)).collect();
        assert_eq!(places.len(), gate.max);
        assert!(gate.enter(local).is_none());
    }
}
