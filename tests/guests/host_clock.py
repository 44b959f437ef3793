#!/usr/bin/env python3
"""A page of memory that the guests share with the host (ivshmem), with the host's CLOCK_REALTIME.

The guest's program `clock compare` reads it and so bounds the difference of both clocks, independently of the network.
As a program, writes the time again and again: the page must be written while a guest reads it.
"""

import ctypes
import mmap
import subprocess
import sys
import time
from dataclasses import dataclass

import network

SIZE = 1 << 20
# Arguments of qemu. The page is a file in the folder of the rig.
ARGUMENTS = (
    "-object",
    f"memory-backend-file,id=host-clock,share=on,size={SIZE},mem-path={{folder}}/host-clock",
    "-device",
    "ivshmem-plain,memdev=host-clock",
)
# Both the guest and the writer need a processor at the same time, which takes longer on a busy host: a comparison
# that is not tight after COMPARE_SECONDS is made again, at most MAX_COMPARISONS times in all.
COMPARE_SECONDS = 10
MAX_COMPARISONS = 6
TIGHT_NS = 1_000_000


@dataclass(frozen=True)
class Bounds:
    """Bounds of a guest's clock minus the host's, in nanoseconds."""

    low: int
    high: int

    def overlaps(self, other):
        return self.low <= other.high and other.low <= self.high

    def middle(self):
        return (self.low + self.high) // 2


def compare(guest):
    """Returns the host's time in nanoseconds and the bounds of a guest's clock minus the host's then."""
    page = guest.rig.folder / "host-clock"
    writer = subprocess.Popen([sys.executable, __file__, str(page)], preexec_fn=network.die_with_parent)
    try:
        for _ in range(MAX_COMPARISONS):
            low, high, at = map(int, guest.output(f"clock compare {COMPARE_SECONDS}").split())
            if high - low <= TIGHT_NS:
                break
    finally:
        writer.kill()
        writer.wait()
    return at, Bounds(low, high)


def write(path):
    with open(path, "r+b") as file:
        page = mmap.mmap(file.fileno(), SIZE)
    # One store of eight bytes, so that a reader sees no mixture of two times.
    value = ctypes.c_int64.from_buffer(page)
    while True:
        value.value = time.time_ns()


if __name__ == "__main__":
    write(sys.argv[1])
