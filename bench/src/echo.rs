//! Attaches echo.bpf.c to a node's interface: replies before the node's stack, until dropped.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dwell_io::{interface, netns};
use libbpf_rs::{Object, ObjectBuilder, Xdp, XdpFlags};

use crate::lab::sibling;

/// The only port with replies, as in echo.bpf.c.
pub(crate) const PORT: &str = "5001";

/// An attached echo program.
pub(crate) struct Echo {
    netns: PathBuf,
    interface: i32,
    object: Object,
    /// Flags that select the mode, as bits.
    mode: u32,
}

impl Echo {
    /// Replies to packets from the side of `peer`, at the node of the network namespace `netns`.
    pub(crate) fn attach(netns: &Path, peer: Ipv4Addr) -> Result<Self> {
        Self::attach_in(netns, peer, XdpFlags::SKB_MODE.bits())
    }

    /// The same in the driver.
    pub(crate) fn attach_native(netns: &Path, peer: Ipv4Addr) -> Result<Self> {
        Self::attach_in(netns, peer, XdpFlags::DRV_MODE.bits())
    }

    fn attach_in(netns: &Path, peer: Ipv4Addr, mode: u32) -> Result<Self> {
        let program = fs::read(sibling("echo.bpf.o")?).context("cannot read echo.bpf.o")?;
        let object = ObjectBuilder::default().open_memory(&program)?.load()?;
        netns::within(netns, || {
            let interface = interface::towards((IpAddr::V4(peer), 0).into())?;
            let interface = interface.context("no route to the peer")?.index.try_into()?;
            let echo = Self { netns: netns.to_owned(), interface, object, mode };
            echo.with(|program| program.attach(interface, XdpFlags::from_bits_retain(mode)))?;
            Ok(echo)
        })?
    }

    fn with(&self, act: impl FnOnce(&Xdp<'_>) -> libbpf_rs::Result<()>) -> Result<()> {
        let program = self.object.progs().find(|program| program.name() == "echo");
        let program = program.context("echo.bpf.o has no program 'echo'")?;
        act(&Xdp::new(program.as_fd())).context("cannot attach or detach the echo program")
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let detach = || {
            self.with(|program| {
                program.detach(self.interface, XdpFlags::from_bits_retain(self.mode))
            })
        };
        // If the namespace is gone, so is the attachment.
        let _ = netns::within(&self.netns, detach);
    }
}
