"""The network of Miya 2020: radios in ad hoc mode, forced into a line, with routes by babeld. The radios are simulated by
mac80211_hwsim; the 802.11 code of the kernel is real."""

import csv
import json
import os
import re
import subprocess
import time

from boot import Spec
from packages import ROOT
from reflector import Reflector

# The tests of labs ask for TAP interfaces. Three nodes start at the same time.
GUESTS = [Spec("radios", "x86_64-6.12", memory=768, modules=("tun",), arguments=("-smp", "2"))]
TIMEOUT = 1000

BUILD = ROOT / "target/debug"
DWELL = BUILD / "dwell"
# The plan at a rate that an emulated processor keeps up with, and one of its sizes.
PLAN = f"{ROOT}/plans/adhoc-relay-short.toml --set trials.repetitions=1 --set flow.rate=25pps --set flow.duration=2s"
SIZES = "--set 'matrix.size=[\"1000B\"]'"
TRIALS = 3
MAX_RUNS = 3
MIN_LAB_TESTS = 6
# At least, without the warm-up.
MIN_PACKETS = 40
LAB = "adhoc"
# Signal of every frame of mac80211_hwsim.
SIGNAL_DBM = -30.0


def guest_of(rig):
    """The guest, with the programs in its memory, in place of those in the shared folder, from which each start takes seconds."""
    guest = rig["radios"]
    if guest.output("ls /programs", check=False):
        return guest
    for name in ("dwell", "dwell-node"):
        subprocess.run(["strip", "-o", guest.output_folder / name, BUILD / name], check=True)
        local = f"/programs/{name}"
        guest.run(f"mkdir -p /programs && mv /output/{name} {local} && mount --bind {local} {BUILD / name}", timeout=90)
    return guest


def lab_tests():
    """The newest test program of `dwell lab`."""
    found = [path for path in (BUILD / "deps").glob("lab-*") if not path.suffix and os.access(path, os.X_OK)]
    assert found, "target/debug has no test program 'lab': cargo test --no-run -p dwell-node-cli --test lab"
    return max(found, key=lambda path: path.stat().st_mtime)


def radios(guest):
    """Radios of all namespaces of the guest. The folder exists when cfg80211 is loaded."""
    return guest.output("modprobe cfg80211 && ls /sys/kernel/debug/ieee80211").split()


class Lab:
    """A line of three radios with routes by babeld."""

    def __init__(self, guest):
        self.guest = guest

    def __enter__(self):
        self.guest.run(f"{DWELL} lab up wifi:3 --name {LAB} --routing babel", timeout=90)
        return self

    def command(self, node, command):
        return f"{DWELL} lab exec --lab {LAB} {node} -- {command}"

    def output(self, node, command, **options):
        return self.guest.output(self.command(node, command), **options)

    def reflector(self, node):
        return Reflector(self.guest, self.command(node, f"{DWELL} reflect"))

    def __exit__(self, *_):
        self.guest.run(f"{DWELL} lab down {LAB}", timeout=60)


def test_ordinary_user_is_refused_until_the_module_is_loaded(rig):
    guest = guest_of(rig)
    done = guest.run(f"{DWELL} lab up wifi:2", user="pi", check=False)
    assert done.returncode == 4, done
    assert "modprobe mac80211_hwsim radios=0" in done.stderr, done.stderr


def test_lab_tests_of_radios_pass(rig):
    text = guest_of(rig).output(f"{lab_tests()} wifi:: --test-threads=1 --show-output 2>&1", timeout=600)
    assert "SKIP" not in text, text
    passed = re.findall(r"^test wifi::\S+ \.\.\. ok$", text, re.MULTILINE)
    print("\n".join(passed))
    assert len(passed) >= MIN_LAB_TESTS, text


def test_ordinary_user_has_radios_of_its_own(rig):
    guest = guest_of(rig)
    text = guest.output(
        f"{DWELL} lab up wifi:2 --name mine && {DWELL} lab exec --lab mine n1 -- ping -c 2 n2; {DWELL} lab down mine",
        user="pi", timeout=60,
    )
    assert " 0% packet loss" in text, text


def test_routes_are_those_of_babeld(rig):
    with Lab(guest_of(rig)) as lab:
        table = json.loads(lab.guest.output(f"{DWELL} lab routes {LAB} --json"))
        assert table["complete"], table
        ends = [route for route in table["routes"] if (route["from"], route["to"]) == ("n1", "n3")]
        assert {(route["protocol"], route["interface"]) for route in ends} == {("babel", "wlan0")}, ends
        # An independent program sees the network.
        link = lab.output("n2", "iw dev wlan0 info")
        assert "type IBSS" in link and "2452 MHz" in link and f"ssid dwell-{LAB}" in link, link
        stations = lab.output("n2", "iw dev wlan0 station dump")
        assert stations.count("signal:") >= 2 and "-30" in stations, stations


def test_stamp_probes_cross_two_hops(rig):
    with Lab(guest_of(rig)) as lab, lab.reflector("n3"):
        summary = json.loads(lab.output("n1", f"{DWELL} ping -c 200 -i 0.02 --json stamp://n3", timeout=60))
    packets = summary["packets"]
    assert packets["received"] + packets["late"] == packets["sent"] == 200, packets
    # The driver does not timestamp sent packets, and the result says so.
    assert (summary["stamps"]["tx"], summary["stamps"]["rx"]) == ("user", "kernel-sw"), summary["stamps"]
    print(json.dumps({"stamps": summary["stamps"], "warnings": summary["trust"]["warnings"]}))


def test_relay_plan_accounts_for_every_packet(rig):
    guest = guest_of(rig)
    data = "--data /tmp/data"
    # A slow emulated processor may not start the nodes of a trial within ten seconds. The trial then fails.
    for _ in range(MAX_RUNS):
        end = json.loads(guest.output(f"{DWELL} run {PLAN} {SIZES} {data} --quiet --json", timeout=300, check=False))
        if end["finished"] == TRIALS:
            break
    rows = list(csv.DictReader(guest.output(f"{DWELL} export last {data} --what host --format csv", timeout=60).splitlines()))
    # The catalogue is read here, because the guest takes minutes to judge the claims.
    guest.run("mv /tmp/data /output/data")
    shown = subprocess.run([DWELL, "show", "last", "--data", guest.output_folder / "data", "--json"], check=True, capture_output=True)
    run = json.loads(shown.stdout)

    states = [(trial["state"], trial["reason"]) for trial in run["trials"]]
    assert states == [("finished", None)] * TRIALS, states
    for trial in run["trials"]:
        packets = trial["packets"]
        assert packets["sent"] >= MIN_PACKETS, packets
        assert packets["received"] + packets["lost"] + packets["late"] == packets["sent"], packets
    print("packets:", {name: sum(trial["packets"][name] for trial in run["trials"]) for name in ("sent", "received", "lost", "late")})
    for trial in run["trials"]:
        # Netfilter's hooks give the node delay without timestamps of the driver.
        assert trial["metrics"]["node_delay_netfilter_ns"]["count"] > 0, trial

    claims = {claim["id"]: claim["verdict"] for claim in run["claims"]}
    print("claims:", claims)
    # The links have no rate, so no claim about them is decided.
    assert {claims[name] for name in ("S0.19-route", "S0.19-translate", "S0.20")} <= {"cannot-tell", "not-run"}, claims
    signals = {row["name"]: float(row["value"]) for row in rows if row["name"].endswith("_signal_dbm")}
    print("signals:", signals)
    assert {f"wlan0_026477ff000{n}_signal_dbm" for n in (1, 2, 3)} <= set(signals), signals
    assert set(signals.values()) == {SIGNAL_DBM}, signals


def test_no_radio_is_left(rig):
    guest = guest_of(rig)
    deadline = time.monotonic() + 10
    while left := radios(guest):
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    assert json.loads(guest.output(f"{DWELL} lab list --json"))["labs"] == []
