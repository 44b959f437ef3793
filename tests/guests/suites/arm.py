"""The node on arm64 and armv7: every command of a small device, memory, and a plan over SSH."""

import json
import time

from boot import Spec
from fleet import Fleet
from packages import ROOT
from suite import Skip

TARGET = "test-arm"
GUESTS = [Spec("arm64", "arm64"), Spec("armv7", "armv7")]

# Names of the builds, by guest.
BUILDS = {"arm64": "aarch64", "armv7": "armv7"}
KILOBYTE, MEGABYTE = 1 << 10, 1_000_000
MAX_SIZE = 3 * MEGABYTE
MAX_IDLE_MEMORY = 3 * MEGABYTE
MAX_BUSY_MEMORY = 4 * MEGABYTE
PORT = 7000

PLAN = f"""
version = 1
name = "first"

[topology]
roles = ["sender", "receiver"]

[ping]
from = "sender"
to = "receiver"
count = 100
rate = "50pps"

[trials]
repetitions = 2
"""


def node(guest):
    build = f"nodes/{BUILDS[guest.name]}/dwell-node"
    if not (ROOT / "target" / build).exists():
        raise Skip(f"target/{build} is missing: make nodes")
    return f"/host/{build}"


def each(rig):
    return [(guest, node(guest)) for guest in rig.guests.values()]


class Reflector:
    """A reflector in a guest, stopped at the end of the block."""

    def __init__(self, guest, url=f"udp://0.0.0.0:{PORT}"):
        self.guest = guest
        self.command = f"exec {node(guest)} reflect {url}"

    def __enter__(self):
        # The shell of the connection becomes the reflector, so its process number is that of the shell.
        self.process = self.guest.start_command(f"echo $$ >/run/reflector; {self.command} 2>/run/reflector.log >/dev/null")
        wait_for(lambda: "listening" in self.guest.output("cat /run/reflector.log", check=False), "the reflector")
        return self

    def memory(self):
        """Resident memory in bytes."""
        line = self.guest.output("grep VmRSS /proc/$(cat /run/reflector)/status")
        return int(line.split()[1]) * KILOBYTE

    def __exit__(self, *_):
        self.guest.run("kill -INT $(cat /run/reflector); rm /run/reflector*", check=False)
        self.process.wait(timeout=10)


def wait_for(condition, name, timeout=30):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{name} is not ready within {timeout} s"
        time.sleep(0.2)


def test_node_starts_and_is_small(rig):
    for guest, program in each(rig):
        version = guest.output(f"{program} --version")
        size = (ROOT / "target/nodes" / BUILDS[guest.name] / "dwell-node").stat().st_size
        print(f"{guest.name}: {version}, {size / MEGABYTE:.2f} MB (at most {MAX_SIZE / MEGABYTE:.0f})")
        assert version.startswith("dwell-node ")
        assert size <= MAX_SIZE


def test_doctor_describes_the_machine(rig):
    for guest, program in each(rig):
        report = json.loads(guest.output(f"{program} doctor --json", timeout=60))
        assert report["schema"] == "dwell.doctor/1"


def test_every_probe_between_the_guests_is_answered(rig):
    (first, program), (second, other) = each(rig)
    for receiver, sender, command in ((first, second, other), (second, first, program)):
        with Reflector(receiver):
            text = sender.output(f"{command} ping -c 100 -i 0.01 -W 2 --json udp://{receiver.test_address}:{PORT}")
        packets = json.loads(text)["packets"]
        assert packets["sent"] == 100
        assert packets["received"] + packets["late"] == 100, packets


def test_train_of_packets_is_sent_whole(rig):
    (first, program), (second, other) = each(rig)
    for sender, command, receiver in ((first, program, second), (second, other, first)):
        url = f"udp://{receiver.test_address}:9"
        result = json.loads(sender.output(f"{command} pace {url} --rate 1Mbit/s --size 576B --repeat 2 --json"))
        assert result["packets"]["sent"] > 0
        assert result["packets"]["send_failed"] == 0


def test_worker_ends_with_its_connection(rig):
    for guest, program in each(rig):
        # The hello precedes the end.
        hello = guest.output(f"{program} worker </dev/null | head -c 4 | wc -c", timeout=15)
        assert hello == "4"


def test_reflector_stays_within_its_memory(rig):
    for guest, _ in each(rig):
        sender = next(other for other in rig.guests.values() if other is not guest)
        with Reflector(guest) as reflector:
            idle = reflector.memory()
            sender.run(f"{node(sender)} ping -c 3000 --rate 1000pps -q udp://{guest.test_address}:{PORT}", check=False)
            busy = reflector.memory()
        print(
            f"{guest.name}: reflector {idle / MEGABYTE:.2f} MB idle (at most {MAX_IDLE_MEMORY / MEGABYTE:.0f}), "
            f"{busy / MEGABYTE:.2f} MB at 1,000 packets/s (at most {MAX_BUSY_MEMORY / MEGABYTE:.0f})"
        )
        assert idle <= MAX_IDLE_MEMORY
        assert busy <= MAX_BUSY_MEMORY


def test_plan_over_ssh_completes(rig):
    fleet = Fleet(rig, "arm")
    fleet.add(*rig.guests.values())
    fleet.dwell("device", "check")
    plan = fleet.write_plan("first", PLAN)
    fleet.dwell("run", plan, "--on", "sender=arm64,receiver=armv7")
    run = fleet.json("show", "last")
    assert [trial["state"] for trial in run["trials"]] == ["complete"] * 2, run
    for trial in run["trials"]:
        packets = trial["packets"]
        assert packets["received"] + packets["late"] == packets["sent"] == 100
    fleet.remove_all()
