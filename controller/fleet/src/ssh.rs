//! The ssh(1) command by which a device is reached. Keys, agents, jump hosts and known hosts are
//! those of the user.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::Device;

/// Environment variable with a command that replaces `ssh`, split at spaces.
pub const SSH_COMMAND: &str = "DWELL_SSH_COMMAND";

/// Options added to those of the user's configuration. None of them weakens the check of host keys.
const OPTIONS: [&str; 9] = [
    // Never ask for a password or a passphrase.
    "BatchMode=yes",
    "ConnectTimeout=10",
    // A connection without an answer for 15 s is lost.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ForwardX11=no",
    "ForwardAgent=no",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
    // Frames may contain any byte.
    "EscapeChar=none",
];

/// Returns the command that runs `remote` on a device, in its own process group: ^C on a terminal
/// signals the whole group of this process, which decides itself what to stop.
pub(crate) fn command(device: &Device, remote: &str) -> Command {
    let replaced = env::var(SSH_COMMAND).unwrap_or_default();
    let mut words = replaced.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).arg("-T");
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    command.args(device.ssh_arguments()).arg(remote);
    command.process_group(0);
    command
}

/// Returns the arguments by which a user reaches a device: `[-p PORT] [USER@]HOST`.
pub(crate) fn typed(device: &Device) -> String {
    let (user, host, port) = device.parts();
    let port = port.map(|port| format!("-p {port} ")).unwrap_or_default();
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    format!("{port}{user}{host}")
}

/// Returns the remedy for a failure that ssh explains with `text`; empty if dwell knows no remedy.
pub(crate) fn remedy(device: &Device, text: &str) -> String {
    let typed = typed(device);
    if text.contains("has changed and you have requested") {
        let (_, host, port) = device.parts();
        let known = port.map_or(host.to_owned(), |port| format!("'[{host}]:{port}'"));
        return format!(
            "; if the device was reinstalled, forget its old key with `ssh-keygen -R {known}` and \
             compare the new one in `ssh {typed}`"
        );
    }
    if text.contains("Host key verification failed") {
        return format!("; compare and accept its host key once in `ssh {typed}`");
    }
    if text.contains("Permission denied") {
        return format!("; install your key with `ssh-copy-id {typed}`, and load it in ssh-agent");
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_keeps_the_host_key_check_and_ends_with_the_script() {
        let device = Device::new("pi4", "pi@192.0.2.7:2222").unwrap();
        let command = command(&device, "true");
        let arguments: Vec<_> =
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(!arguments.iter().any(|word| word.contains("StrictHostKeyChecking")));
        let end = ["-p", "2222", "-l", "pi", "--", "192.0.2.7", "true"];
        assert!(arguments.ends_with(&end.map(str::to_owned)), "{arguments:?}");
        assert_eq!(typed(&device), "-p 2222 pi@192.0.2.7");
    }

    #[test]
    fn failures_of_ssh_have_a_remedy() {
        let device = Device::new("pi4", "pi@board").unwrap();
        let denied = remedy(&device, "pi@board: Permission denied (publickey).");
        assert!(denied.contains("`ssh-copy-id pi@board`"), "{denied}");
        let changed = "Host key for board has changed and you have requested strict checking.; \
                       Host key verification failed.";
        assert!(remedy(&device, changed).contains("`ssh-keygen -R board`"));
        assert!(remedy(&device, "Host key verification failed.").contains("in `ssh pi@board`"));
        assert_eq!(remedy(&device, "Connection refused"), "");
    }
}
