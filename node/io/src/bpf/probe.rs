//! Probes for eBPF support by loading and attaching a minimal program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::link::{self, Attr, BPF_NETFILTER, BPF_XDP, Place};

/// Commands and program types (linux/bpf.h).
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_PROG_TYPE_NETFILTER: u32 = 32;

/// Kind of hook that a program can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// XDP, in the driver or just after it.
    Xdp,
    /// A netfilter hook, such as PRE_ROUTING.
    Netfilter,
}

/// How an XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// By the driver, before a socket buffer exists.
    Native,
    /// By the kernel, on any interface.
    Generic,
}

/// A loaded program that passes every packet.
#[derive(Debug)]
pub struct Pass(OwnedFd);

/// A program attached to an interface until this is dropped.
#[derive(Debug)]
#[must_use = "dropping detaches"]
pub struct Attached(#[expect(dead_code, reason = "held for its drop")] OwnedFd);

/// struct bpf_insn.
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, immediate: i32) -> Self {
        Self { code, registers: 0, offset: 0, immediate }
    }
}

/// r0 = verdict; exit.
const fn returning(verdict: i32) -> [Instruction; 2] {
    const MOV64_R0_IMM: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    [Instruction::new(MOV64_R0_IMM, verdict), Instruction::new(EXIT, 0)]
}

impl Pass {
    /// Loads the program.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL if the kernel lacks the hook.
    pub fn load(hook: Hook) -> io::Result<Self> {
        let (kind, attach, verdict) = match hook {
            Hook::Xdp => (BPF_PROG_TYPE_XDP, BPF_XDP, 2), // XDP_PASS
            Hook::Netfilter => (BPF_PROG_TYPE_NETFILTER, BPF_NETFILTER, 1), // NF_ACCEPT
        };
        let program = returning(verdict);
        let licence = c"Dual BSD/GPL";
        let mut attr = Attr::new();
        attr.put(0, kind);
        attr.put(4, program.len() as u32);
        attr.put_pointer(8, program.as_ptr().cast());
        attr.put_pointer(16, licence.as_ptr().cast());
        attr.put(68, attach);
        // The instructions and the licence outlive the call.
        attr.call(BPF_PROG_LOAD).map(Self)
    }

    /// Attaches a program for [`Hook::Xdp`] to the interface with this index.
    ///
    /// # Errors
    /// The driver has no native XDP, another program is attached, or the privilege is missing.
    pub fn attach_xdp(&self, index: u32, mode: XdpMode) -> io::Result<Attached> {
        link::create(self.0.as_fd(), Place::Xdp { interface: index, mode }).map(Attached)
    }
}
