"""The networks of the guests, in the network namespace of this process.

`enter` starts the program again in a namespace of its own, which ends with its last process. There the host has
one bridge for management (SSH) and one for test traffic; each guest has a TAP interface on both.
"""

import ctypes
import os
import subprocess
import sys

MANAGEMENT = "management"
TEST = "test"
# Host number 1 is the host itself; guests follow.
PREFIXES = {MANAGEMENT: ["10.93.0.{}/24"], TEST: ["10.94.0.{}/24", "fd94::{}/64"]}
INSIDE = "DWELL_GUESTS_INSIDE"


def enter():
    """Continues in a new network namespace with both bridges."""
    if os.environ.get(INSIDE) != str(os.getpid()):
        os.environ[INSIDE] = str(os.getpid())
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    del os.environ[INSIDE]
    # Children of this process set up their own sessions; the bridges exist only here.
    ip("link", "set", "lo", "up")
    for bridge, addresses in PREFIXES.items():
        ip("link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
        ip("link", "set", bridge, "up")
        for address in addresses:
            nodad = ["nodad"] if ":" in address else []
            ip("address", "add", address.format(1), "dev", bridge, *nodad)


def add_tap(name, bridge):
    ip("tuntap", "add", name, "mode", "tap")
    ip("link", "set", name, "master", bridge, "up")


def remove_tap(name):
    subprocess.run(["ip", "link", "delete", name], stderr=subprocess.DEVNULL, timeout=10, check=False)


def addresses(bridge, number):
    """Addresses of a host on a bridge, with prefix length."""
    return [address.format(number) for address in PREFIXES[bridge]]


def hardware_address(bridge, number):
    """A locally administered MAC address."""
    return f"02:dd:00:00:{list(PREFIXES).index(bridge):02x}:{number:02x}"


def ip(*arguments):
    subprocess.run(["ip", *arguments], timeout=10, check=True)


def die_with_parent():
    """Lets the kernel kill this process when its parent ends: for the start of a child process."""
    pr_set_pdeathsig, sigkill = 1, 9
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, sigkill)
