//! Checks of devices, and removal of all that dwell stored on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::deployment::Deployment;
use crate::parallel::{MAX_PARALLEL, for_each_parallel};
use crate::{Device, FleetError, NodeBinaries};

/// Time for `doctor` on a device.
const DOCTOR_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of the answer of `doctor` in bytes.
const MAX_ANSWER_LEN: u64 = 256 << 10;

/// Answer of a device to a check.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceAnswer {
    /// Machine type (`uname -m`).
    pub arch: String,
    /// Kernel release.
    pub kernel: String,
    /// User id on the device.
    pub uid: u32,
    /// Folder of the node program there.
    pub dir: String,
    /// Path of the node program there.
    pub program: String,
    /// Build of the node program, `VERSION+HASH`.
    pub build: String,
    /// Length of the node program in bytes if it was copied; 0 if it was there.
    pub uploaded_bytes: u64,
    /// Time to connect and to start the bootstrap.
    pub connect: Duration,
    /// Output of `dwell-node doctor --json` (`dwell.doctor/1`).
    pub doctor: Value,
}

/// Checks devices, several at a time, until `stop` is set. `done` is called on this thread as each check
/// ends, with the index of the device, but not for checks that `stop` ended or prevented.
pub fn check_devices(
    devices: &[Device],
    binaries: &NodeBinaries,
    stop: &Arc<AtomicBool>,
    done: &mut dyn FnMut(usize, Result<DeviceAnswer, FleetError>),
) {
    let check = |device: &Device| {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let answer = check(device, binaries, stop);
        // The error may be the end of the wait.
        (answer.is_ok() || !stop.load(Ordering::Relaxed)).then_some(answer)
    };
    for_each_parallel(devices, MAX_PARALLEL, check, |index, answer| {
        if let Some(answer) = answer {
            done(index, answer);
        }
    });
}

fn check(
    device: &Device,
    binaries: &NodeBinaries,
    stop: &Arc<AtomicBool>,
) -> Result<DeviceAnswer, FleetError> {
    let deployed = Deployment::connect(device, binaries, stop)?.deploy(binaries)?;
    let facts = deployed.facts().clone();
    let (dir, connect) = (deployed.dir().to_owned(), deployed.connect());
    let program = deployed.program();
    let uploaded_bytes = deployed.uploaded_bytes;
    let build = deployed.binary.build();
    let output = deployed.output("doctor --json", DOCTOR_TIMEOUT, MAX_ANSWER_LEN)?;
    let doctor = serde_json::from_slice(&output).map_err(|error| FleetError::Device {
        device: device.name.clone(),
        message: format!("the answer of its `dwell-node doctor --json` cannot be read: {error}"),
    })?;
    Ok(DeviceAnswer {
        arch: facts.machine,
        kernel: facts.kernel,
        uid: facts.uid,
        dir,
        program,
        build,
        uploaded_bytes,
        connect,
        doctor,
    })
}

/// Removes all files that dwell stored on a device. `stop` ends every wait.
///
/// # Errors
/// The device is unreachable, a run uses it ([`FleetError::Leased`]), a file cannot be removed, or `stop`
/// was set.
pub fn remove_deployment(device: &Device, stop: &Arc<AtomicBool>) -> Result<(), FleetError> {
    Deployment::connect(device, &NodeBinaries::default(), stop)?.remove()
}
