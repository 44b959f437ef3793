//! bpf(2) and links. A link keeps a program attached while its descriptor is open. Programs of
//! others stay attached where a hook accepts several.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::probe::XdpMode;

/// Commands, attach types and flags (linux/bpf.h, linux/if_link.h).
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_DETACH: libc::c_long = 34;
pub(super) const BPF_XDP: u32 = 37;
pub(super) const BPF_NETFILTER: u32 = 45;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;
const BPF_F_BEFORE: u32 = 1 << 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where a program is attached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// One XDP program per interface.
    Xdp { interface: u32, mode: XdpMode },
    /// In front of all other tcx programs. A program that returns a verdict hides the packet from
    /// later ones.
    Tcx { interface: u32, egress: bool },
    /// A netfilter hook of the current network namespace. Two eBPF programs cannot share a
    /// priority.
    Netfilter { family: u32, hook: u32, priority: i32 },
}

/// Attaches a program until the returned descriptor is dropped.
pub(super) fn create(program: BorrowedFd<'_>, place: Place) -> io::Result<OwnedFd> {
    let mut attr = Attr::new();
    attr.put(0, program.as_raw_fd() as u32);
    match place {
        Place::Xdp { interface, mode } => {
            attr.put(4, interface);
            attr.put(8, BPF_XDP);
            attr.put(
                12,
                match mode {
                    XdpMode::Native => XDP_FLAGS_DRV_MODE,
                    XdpMode::Generic => XDP_FLAGS_SKB_MODE,
                },
            );
        }
        Place::Tcx { interface, egress } => {
            attr.put(4, interface);
            attr.put(8, if egress { BPF_TCX_EGRESS } else { BPF_TCX_INGRESS });
            attr.put(12, BPF_F_BEFORE);
        }
        Place::Netfilter { family, hook, priority } => {
            attr.put(8, BPF_NETFILTER);
            attr.put(16, family);
            attr.put(20, hook);
            attr.put(24, priority.cast_unsigned());
        }
    }
    attr.call(BPF_LINK_CREATE)
}

/// Detaches a program, even if another descriptor of its link is open: a thread with a descriptor
/// table of its own has a copy of each.
pub(super) fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = Attr::new();
    attr.put(0, link.as_raw_fd() as u32);
    attr.run(BPF_LINK_DETACH).map(|_| ())
}

/// union bpf_attr, written by offset; other bytes are zero.
#[repr(align(8))]
pub(super) struct Attr([u8; 128]);

impl Attr {
    pub(super) fn new() -> Self {
        Self([0; 128])
    }

    pub(super) fn put(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// Writes a pointer, which the kernel reads as 64 bits on every architecture.
    pub(super) fn put_pointer(&mut self, at: usize, pointer: *const u8) {
        self.0[at..at + 8].copy_from_slice(&(pointer as usize as u64).to_ne_bytes());
    }

    /// Runs a command; returns its result.
    fn run(&mut self, command: libc::c_long) -> io::Result<libc::c_long> {
        // SAFETY: the kernel reads the attribute, of the stated size, and the memory that its
        // pointers refer to, which the callers keep alive.
        let result = unsafe {
            libc::syscall(libc::SYS_bpf, command, self.0.as_mut_ptr(), self.0.len() as libc::c_long)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// Runs a command that returns a descriptor.
    pub(super) fn call(&mut self, command: libc::c_long) -> io::Result<OwnedFd> {
        let fd = self.run(command)?;
        // SAFETY: the kernel just created this descriptor (close-on-exec); nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}
