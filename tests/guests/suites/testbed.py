"""The commands of docs/testbed.md, in its order, with two guests as the devices `pi4` and `pi3`.

They are typed into a terminal by a user whose ~/.ssh is empty. Only the host names are replaced, by addresses of the guests.
"""

import os
import pty
import re
import select
import signal
import time
from pathlib import Path

import fleet
from boot import Spec
from packages import ROOT

TARGET = "test-arm"
TIMEOUT = 600
GUESTS = [Spec("pi4", "arm64"), Spec("pi3", "armv7")]

DOCUMENT = ROOT / "docs/testbed.md"
MIN_BLOCKS = 8
BLOCK_TIMEOUT = 240
# The question of ssh about an unknown host key.
QUESTION = b"(yes/no"
# Hides the user's ~/.ssh behind an empty one, in a mount namespace.
SHELL = 'mount --bind "$0" ~/.ssh && exec sh -euc "$1"'


def blocks():
    return re.findall(r"^```sh testbed\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


class User:
    """A person at a terminal, with an empty ~/.ssh and a folder to work in."""

    def __init__(self, rig):
        self.rig = rig
        self.ssh = rig.folder / "ssh"
        self.ssh.mkdir(mode=0o700)
        self.work = rig.folder / "work"
        self.work.mkdir()
        (self.work / "plans").symlink_to(ROOT / "plans")
        programs = rig.folder / "bin"
        programs.mkdir()
        (programs / "dwell").symlink_to(fleet.program())
        # Programs for the devices are found beside the build, not beside the link.
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DWELL_")},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TERM": "dumb",
        }

    def type(self, commands):
        """Types commands of the document; returns what the terminal shows. Fails if a command fails."""
        for guest in self.rig.guests.values():
            commands = commands.replace(f"{guest.name}.local", guest.address)
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(self.work)
            command = ["unshare", "--mount", "sh", "-euc", SHELL, str(self.ssh), commands]
            os.execvpe(command[0], command, self.environment)
        try:
            shown = watch(terminal, BLOCK_TIMEOUT)
        finally:
            os.close(terminal)
            status = end(process)
        assert status == 0, f"exit code {status}:\n{commands}\n{shown}"
        return shown


def watch(terminal, timeout):
    """Returns what a terminal shows until its last process ends. Answers the question about a host key."""
    shown, answered = b"", 0
    deadline = time.monotonic() + timeout
    while True:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        text = shown.decode(errors="replace")
        assert ready, f"no end within {timeout} s:\n{text}"
        try:
            read = os.read(terminal, 65_536)
        except OSError:
            # The other side is closed.
            return text
        if not read:
            return text
        shown += read
        if shown.count(QUESTION) > answered:
            answered += 1
            os.write(terminal, b"yes\n")


def end(process):
    """Returns the exit code of a process, which is killed if it does not end."""
    deadline = time.monotonic() + 5
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            deadline += 60
        time.sleep(0.05)


def paste_key(user):
    """Does what Raspberry Pi Imager does: the key of the user becomes that of the devices."""
    key = (user.ssh / "id_ed25519.pub").read_text()
    for guest in user.rig.guests.values():
        guest.write("/home/pi/.ssh/authorized_keys", key)


def test_commands_of_the_document_work(rig):
    commands = blocks()
    assert len(commands) >= MIN_BLOCKS, f"{DOCUMENT} has {len(commands)} blocks of commands"
    home = Path.home() / ".ssh"
    is_new = not home.exists()
    home.mkdir(mode=0o700, exist_ok=True)
    try:
        follow(rig, commands)
    finally:
        if is_new:
            home.rmdir()


def follow(rig, commands):
    user = User(rig)
    for place, block in enumerate(commands):
        print(f"--- {block.rstrip()}\n{user.type(block)}", flush=True)
        if place == 0:
            paste_key(user)
    page = (user.work / "first.html").read_text()
    assert "<html" in page
    rows = (user.work / "first.csv").read_text().splitlines()
    # Six trials of 500 probes, and the names of the columns.
    assert len(rows) == 6 * 500 + 1, len(rows)


def test_devices_keep_no_files(rig):
    for guest in rig.guests.values():
        kept = guest.output("find / -xdev -name 'dwell*' -not -path '/sys/*' -not -path '/proc/*'")
        assert not kept, kept


def test_document_is_complete(rig):
    text = "\n".join(blocks())
    for command in ("device add", "device check", "run plans/", "show", "report", "device remove"):
        assert f"dwell {command}" in text, f"{DOCUMENT} lacks: dwell {command}"
