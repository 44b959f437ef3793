"""Clocks: the controller's bounds of two guests' clocks, compared with the truth of a page shared with the host."""

import json
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime

import host_clock
from agent import PORT, Agent, remove_spool
from boot import Spec
from fleet import devices, wait_for_probes
from host_clock import Bounds

GUESTS = [Spec(name, "x86_64-6.12", arguments=host_clock.ARGUMENTS) for name in ("left", "right")]

MILLISECOND = 1_000_000
SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
# A virtual CPU may stall for tens of milliseconds, but hardly in each of the exchanges of a trial.
MAX_ERROR = 20 * MILLISECOND
# A wider truth would overlap with any bounds.
MAX_TRUTH_WIDTH = MAX_ERROR // 4
STEP = 250 * MILLISECOND
RATE_PPM = 400
MAX_RATE_ERROR_PPM = 200
DAY = 24 * HOUR
COLLECT_TIMEOUT = 90
# The kernel adds 500 ppm to the bound that a daemon declares.
DECLARED_BOUND = 40 * MILLISECOND
OFFSET = 25 * MILLISECOND

PLAN = """
version = 1
name = "clocks"

[topology]
roles = ["left", "right"]

[ping]
from = "left"
to = "right"
rate = "50pps"
duration = "{duration}"

[trials]
repetitions = 1
"""

MESH = f"""
version = 1

[[measure]]
name = "mesh"
mesh = "all"
port = {PORT}
interval = "100ms"
"""


@dataclass(frozen=True)
class Estimate:
    """What dwell stored of a clock with a trial: bounds at an instant of the controller's clock, in nanoseconds, and
    the rate with its error."""

    at: int
    bounds: Bounds
    rate_ppm: float
    rate_error_ppm: float

    @classmethod
    def of(cls, trial, role):
        names = ("at_ns", "offset_ns", "error_ns", "rate_ppm", "rate_error_ppm")
        values = {name: trial["values"].get(f"clock_{role}_{name}") for name in names}
        assert None not in values.values(), f"the trial has no bounds of the clock of {role}: {values}"
        offset, error = int(values["offset_ns"]), int(values["error_ns"])
        bounds = Bounds(offset - error, offset + error)
        return cls(int(values["at_ns"]), bounds, values["rate_ppm"], values["rate_error_ppm"])


class Truth:
    """The truth before and after a trial, as (time, bounds)."""

    def __init__(self, guest):
        self.guest = guest
        self.before = host_clock.compare(guest)

    def end(self):
        self.after = host_clock.compare(self.guest)

    def bounds_at(self, instant):
        """Bounds at an instant, if the clock's rate was constant."""
        (start, first), (end, last) = self.before, self.after
        part = (instant - start) / (end - start)
        return Bounds(*(round(a + (b - a) * part) for a, b in ((first.low, last.low), (first.high, last.high))))

    def rate_ppm(self):
        """The rate, and its error."""
        (start, first), (end, last) = self.before, self.after
        width = (first.high - first.low + last.high - last.low) / 2
        return (last.middle() - first.middle()) / (end - start) * 1e6, width / (end - start) * 1e6


def run(rig, duration="5s"):
    """Runs a trial; returns it, and the truth of both clocks by guest."""
    fleet = devices(rig)
    plan = fleet.write_plan("clocks", PLAN.format(duration=duration))
    truths = {name: Truth(guest) for name, guest in rig.guests.items()}
    fleet.dwell("run", plan, "--on", "left=left,right=right")
    for truth in truths.values():
        truth.end()
    return last_trial(fleet), truths


def last_trial(fleet):
    return fleet.json("show", "last")["trials"][0]


def check(trial, truths):
    """Compares the bounds of both clocks with the truth; returns the estimates."""
    estimates = {}
    for name, truth in truths.items():
        estimate = estimates[name] = Estimate.of(trial, name)
        true = truth.bounds_at(estimate.at)
        error = (estimate.bounds.high - estimate.bounds.low) / 2
        print(
            f"{name}: {estimate.bounds.middle() / 1e6:.3f} ms, error {error / 1e6:.3f} ms, "
            f"true {true.low / 1e6:.3f} to {true.high / 1e6:.3f} ms"
        )
        assert true.high - true.low <= MAX_TRUTH_WIDTH, "the host was too busy to compare the clocks"
        assert estimate.bounds.overlaps(true)
        assert error <= MAX_ERROR
    return estimates


def test_bounds_of_both_clocks_are_true(rig):
    check(*run(rig))


def test_stepped_clock_is_followed(rig):
    before = check(*run(rig))
    rig["right"].run(f"clock step {STEP}")
    after = check(*run(rig))
    moved = after["right"].bounds.middle() - before["right"].bounds.middle()
    assert abs(moved - STEP) <= 2 * MAX_ERROR, moved
    moved = after["left"].bounds.middle() - before["left"].bounds.middle()
    assert abs(moved) <= 2 * MAX_ERROR, moved


def test_rate_of_a_clock_is_bounded(rig):
    rig["right"].run(f"clock rate {RATE_PPM}")
    try:
        trial, truths = run(rig, duration="20s")
    finally:
        rig["right"].run("clock rate 0")
    estimate = check(trial, truths)["right"]
    true, error = truths["right"].rate_ppm()
    print(
        f"right: {estimate.rate_ppm:.1f} ppm, error {estimate.rate_error_ppm:.1f}, "
        f"true {true:.1f} with error {error:.1f}"
    )
    assert true > RATE_PPM / 2
    assert abs(estimate.rate_ppm - true) <= estimate.rate_error_ppm + error
    assert estimate.rate_error_ppm <= MAX_RATE_ERROR_PPM


def test_jump_by_an_hour_in_a_trial_is_reported(rig):
    fleet = devices(rig)
    plan = fleet.write_plan("jump", PLAN.format(duration="15s"))
    process = fleet.start("run", plan, "--on", "left=left,right=right")
    try:
        wait_for_probes(rig["right"])
        rig["right"].run(f"clock step {HOUR}")
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    trial = last_trial(fleet)
    codes = [warning["code"] for warning in trial["trust"]["warnings"]]
    assert trial["values"].get("clock_right_offset_ns") is None, trial["values"]
    assert "clock-unbounded" in codes, f"{codes}\n{output}"
    # The other clock is still known, and the next trial knows both.
    Estimate.of(trial, "left")
    estimates = check(*run(rig))
    assert abs(estimates["right"].bounds.middle() - HOUR) <= SECOND
    rig["right"].run(f"clock step {-HOUR}")


@contextmanager
def hub(fleet):
    """An embedded hub with a schedule in which both guests measure each other."""
    fleet.dwell("hub", "schedule", "apply", fleet.write_plan("mesh", MESH))
    process = fleet.start("hub", "--embedded", "--interval", "2s")
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def node_of(fleet, name):
    """What the hub knows about a node."""
    known = fleet.json("hub", "nodes")["nodes"]
    return next((node for node in known if node["node"] == name), {"undated": 0, "stored": 0})


def rows(fleet, pair, metric="rtt", last="10m"):
    """Rows of 10 s of a pair, with delays."""
    arguments = ["query", pair, "--metric", metric, "--last", last, "--step", "10s", "--format", "json"]
    done = fleet.dwell(*arguments, codes=(0, 1, 2))
    streams = json.loads(done.stdout)["streams"] if done.returncode == 0 else []
    return [row for stream in streams for row in stream["rows"] if row["n"]]


def wait_until(text, condition):
    deadline = time.monotonic() + COLLECT_TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {COLLECT_TIMEOUT} s: {text}"
        time.sleep(0.5)
    return found


def test_records_of_a_wrong_clock_are_dated_when_it_is_right(rig):
    fleet, wrong = devices(rig), rig["right"]
    started = time.time()
    with hub(fleet), Agent(rig["left"]):
        wrong.run(f"clock step {-30 * DAY}")
        try:
            with Agent(wrong):
                wait_until("rows of the right clock", lambda: rows(fleet, "left:right"))
                # At least the status and two intervals.
                wait_until("records without a date", lambda: node_of(fleet, "right")["undated"] >= 3)
                assert not rows(fleet, "right:left", last="60d"), "a wrong clock gives no dates"
        finally:
            wrong.run(f"clock step {30 * DAY}")
        ended = time.time()
        # The first status of this agent has a plausible time, and the boot of the records without one.
        with Agent(wrong):
            wait_until("all records to have a date", lambda: node_of(fleet, "right")["undated"] == 0)
            dated = rows(fleet, "right:left")
            # No daemon declares the error of either clock.
            assert not rows(fleet, "left:right", metric="one_way_forward")
    first = datetime.fromisoformat(dated[0]["from"]).timestamp()
    print(f"first row {first - started:.1f} s after the start, clock corrected after {ended - started:.1f} s")
    assert started - 10 <= first <= ended, (started, dated[0], ended)


def test_one_way_delays_keep_the_bounds_of_both_clocks(rig):
    fleet = devices(rig)
    for name, offset in (("left", 0), ("right", OFFSET)):
        _, bounds = host_clock.compare(rig[name])
        rig[name].run(f"clock step {offset - bounds.middle()} && clock bound {DECLARED_BOUND}")
    with hub(fleet), ExitStack() as agents:
        for guest in rig.guests.values():
            agents.enter_context(Agent(guest))
        found = wait_until("one-way delays", lambda: rows(fleet, "left:right", metric="one_way_forward"))
        _, left = host_clock.compare(rig["left"])
        _, right = host_clock.compare(rig["right"])
    delays = found[-1]["delays"]
    shift = right.middle() - left.middle()
    print(f"shift {shift / 1e6:.3f} ms, forward from {delays['min_ns'] / 1e6:.3f} ms, error {delays['error_ns'] / 1e6:.3f} ms")
    assert 2 * DECLARED_BOUND <= delays["error_ns"] <= 4 * DECLARED_BOUND
    # The measured delay contains the difference of the clocks, and the bounds contain the true one.
    assert delays["min_ns"] >= shift - MAX_ERROR
    assert delays["min_ns"] - delays["error_ns"] <= delays["min_ns"] - shift <= delays["min_ns"] + delays["error_ns"]


def test_devices_are_removed(rig):
    for guest in rig.guests.values():
        remove_spool(guest)
    devices(rig).remove_all()
