"""The node on arm64 and armv7: every command of a small device, memory, and a plan over SSH."""

import json

from boot import Spec
from fleet import devices
from packages import ROOT
from reflector import Reflector
from suite import Skip

TARGET = "test-arm"
GUESTS = [Spec("arm64", "arm64"), Spec("armv7", "armv7")]

# Names of the builds, by guest.
BUILDS = {"arm64": "aarch64", "armv7": "armv7"}
MEGABYTE = 1_000_000
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


def reflector(guest):
    return Reflector(guest, f"{node(guest)} reflect udp://0.0.0.0:{PORT}")


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
        with reflector(receiver):
            text = sender.output(f"{command} ping -c 100 -i 0.01 -W 2 --json udp://{receiver.test_address}:{PORT}")
        packets = json.loads(text)["packets"]
        assert packets["sent"] == 100
        assert packets["received"] + packets["late"] == 100, packets


def test_train_of_packets_is_sent_whole(rig):
    (first, program), (second, other) = each(rig)
    for sender, command, receiver in ((first, program, second), (second, other, first)):
        url = f"udp://{receiver.test_address}:9"
        result = json.loads(sender.output(f"{command} pace {url} --rate 1Mbit/s --size 576B --repeat 2 --json"))
        # Gaps of two trains of 50 packets.
        assert result["metrics"]["gap_ns"]["count"] == 2 * 49, result["metrics"]


def test_worker_ends_with_its_connection(rig):
    for guest, program in each(rig):
        # The hello precedes the end.
        hello = guest.output(f"{program} worker </dev/null | head -c 4 | wc -c", timeout=15)
        assert hello == "4"


def test_reflector_stays_within_its_memory(rig):
    for guest, _ in each(rig):
        sender = next(other for other in rig.guests.values() if other is not guest)
        with reflector(guest) as running:
            idle = running.memory()
            command = f"{node(sender)} ping -c 3000 -i 0.001 -W 2 --json udp://{guest.test_address}:{PORT}"
            packets = json.loads(sender.output(command))["packets"]
            # An emulated processor that stalls drops packets; enough of them must arrive to fill all buffers.
            assert packets["sent"] == 3000 and packets["received"] >= 1000, packets
            busy = running.memory()
        print(
            f"{guest.name}: reflector {idle / MEGABYTE:.2f} MB idle (at most {MAX_IDLE_MEMORY / MEGABYTE:.0f}), "
            f"{busy / MEGABYTE:.2f} MB at 1,000 packets/s (at most {MAX_BUSY_MEMORY / MEGABYTE:.0f})"
        )
        assert idle <= MAX_IDLE_MEMORY
        assert busy <= MAX_BUSY_MEMORY


def test_plan_over_ssh_completes(rig):
    fleet = devices(rig)
    plan = fleet.write_plan("first", PLAN)
    fleet.dwell("run", plan, "--on", "sender=arm64,receiver=armv7")
    run = fleet.json("show", "last")
    assert [trial["state"] for trial in run["trials"]] == ["finished"] * 2, run
    for trial in run["trials"]:
        packets = trial["packets"]
        assert packets["received"] + packets["late"] == packets["sent"] == 100
    fleet.remove_all()
