//! TAP interfaces: network interfaces whose wire is a file descriptor.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use dwell_units::{Instant, Monotonic, Nanos};

use crate::clock;
use crate::sys::time::timespec;

/// A TAP interface without offloads: frames pass unchanged, as on a wire. The interface ends with
/// this value, even if it was moved to another namespace.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Creates an interface called `name` in the calling thread's network namespace.
    ///
    /// The descriptor keeps *that* namespace alive, but not one that the interface is moved to
    /// later: when that namespace ends, so does the interface, and [`Tap::receive`] fails.
    ///
    /// # Errors
    /// Not root (a user namespace is not enough), no /dev/net/tun, or a name that is in use, empty
    /// or longer than 15 bytes.
    pub fn create(name: &str) -> io::Result<Self> {
        let name = CString::new(name)?;
        let name = name.as_bytes_with_nul();
        let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
        // SAFETY: ifreq is plain data for which all zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let room = request.ifr_name.get_mut(..name.len()).ok_or_else(wrong)?;
        for (to, from) in room.iter_mut().zip(name) {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which is initialised and exclusively ours.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &mut request) } {
            0 => Ok(Self(file)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Receives the next frame sent through the interface; `None` if no frame is queued. A frame
    /// longer than `buffer` is truncated.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Injects a frame as received by the interface.
    ///
    /// # Errors
    /// The interface is down or gone, or the frame is invalid.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

/// Sleeps until one of `taps` has a frame or is gone, or until `until`, if given. The kernel may
/// return late, and a signal early.
pub fn wait(taps: [&Tap; 2], until: Option<Instant<Monotonic>>) {
    let mut entries =
        taps.map(|tap| libc::pollfd { fd: tap.0.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let timeout = until.map(|until| timespec((until - clock::monotonic()).max(Nanos::ZERO)));
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the two entries and the timeout, if any, outlive the call; a null signal mask leaves
    // the thread's own in place.
    unsafe { libc::ppoll(entries.as_mut_ptr(), 2, timeout, std::ptr::null()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tap_name_is_refused() {
        let kind = |name: &str| Tap::create(name).unwrap_err().kind();
        assert_eq!(kind("a-name-of-16-bytes"), io::ErrorKind::InvalidInput);
        assert_eq!(kind("a\0b"), io::ErrorKind::InvalidInput);
    }
}
