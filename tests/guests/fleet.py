"""The controller: `dwell` with the guests of a rig as devices."""

import json
import os
import subprocess
import time
from pathlib import Path

import network
from packages import ROOT

DWELL_TIMEOUT = 90


class FleetError(Exception):
    """A command of `dwell` that fails or takes too long."""


def program():
    """Path of `dwell`: $DWELL, or the debug build."""
    return Path(os.environ.get("DWELL", ROOT / "target/debug/dwell"))


class Fleet:
    """Runs `dwell` with a data folder of its own, which reaches the guests of a rig by their names."""

    def __init__(self, rig):
        self.rig = rig
        self.folder = rig.folder / "fleet"
        self.folder.mkdir()
        self.environment = dict(
            os.environ,
            DWELL_DATA=str(self.folder / "data"),
            DWELL_SSH_COMMAND=f"ssh -F {rig.ssh_config}",
            NO_COLOR="1",
        )

    def dwell(self, *arguments, timeout=DWELL_TIMEOUT, codes=(0,)):
        """Runs a command of `dwell`; returns the finished process with text output."""
        command = [str(program()), *map(str, arguments)]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise FleetError(f"no end within {timeout} s: {' '.join(command)}\n{error.stderr}") from None
        if done.returncode not in codes:
            raise FleetError(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}{done.stderr}")
        return done

    def start(self, *arguments):
        """Starts a command of `dwell`, which ends with this process; returns it."""
        return subprocess.Popen(
            [str(program()), *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=network.die_with_parent,
        )

    def json(self, *arguments, **options):
        return json.loads(self.dwell(*arguments, "--json", **options).stdout)

    def add(self, *guests):
        """Adds guests as devices, with their addresses on the test network."""
        for guest in guests:
            self.dwell("device", "add", guest.name, guest.name, "--address", guest.test_address, "--interface", "eth1")

    def write_plan(self, name, text):
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def remove_all(self):
        """Removes the devices, and what was copied to them."""
        for guest in self.rig.guests.values():
            self.dwell("device", "remove", guest.name, "--yes")


def devices(rig):
    """Returns the fleet of a rig. The first call adds all guests as devices and checks them."""
    if not hasattr(rig, "fleet"):
        rig.fleet = Fleet(rig)
        rig.fleet.add(*rig.guests.values())
        rig.fleet.dwell("device", "check")
    return rig.fleet


def wait_for_probes(guest, timeout=150):
    """Waits until test traffic arrives in a guest: a trial is in progress."""
    count = "cat /sys/class/net/eth1/statistics/rx_packets"
    deadline = time.monotonic() + timeout
    before = int(guest.output(count))
    while (now := int(guest.output(count))) < before + 20:
        assert time.monotonic() < deadline, f"no probes arrive in {guest.name} within {timeout} s"
        before = min(before, now)
