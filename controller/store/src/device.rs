//! Devices, their checks and their leases as stored in the catalogue.

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// Key in the catalogue.
    pub(crate) id: i64,
    /// Name, unique in the catalogue.
    pub name: String,
    /// RFC 3339, UTC.
    pub added: String,
    /// Description as JSON; not interpreted here.
    pub description: String,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The device answered.
    Answer {
        /// Machine type, such as `aarch64`.
        arch: String,
        /// Kernel release.
        kernel: String,
        /// Build of the node.
        build: String,
        /// The whole answer as JSON; not interpreted here.
        answer: String,
    },
    /// The check failed, with the reason.
    Error(String),
}

/// A stored check of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceCheck {
    /// RFC 3339, UTC.
    pub at: String,
    /// Its result.
    pub result: CheckResult,
}

/// The use of a device by a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Name of the device.
    pub device: String,
    /// Name of the run.
    pub run: String,
    /// Owner of the run, as `USER@HOST`.
    pub owner: String,
    /// RFC 3339, UTC.
    pub since: String,
    /// Process of the runner.
    pub pid: u32,
    /// Whether that process no longer runs the plan. The next run replaces such a lease.
    pub stale: bool,
}

/// The last check of a device in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastCheck {
    /// RFC 3339, UTC.
    pub at: String,
    /// Why it failed; `None` if the device answered.
    pub error: Option<String>,
    /// The wanted number of the answer; `None` if the answer has none.
    pub number: Option<i64>,
}
