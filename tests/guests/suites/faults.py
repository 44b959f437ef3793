"""A device restarts, or its cable is pulled, in a trial: the trial fails with its reason, and the run goes on."""

import time

import leftovers
from boot import Spec
from fleet import devices, wait_for_probes

TIMEOUT = 300
GUESTS = [Spec("steady", "x86_64-6.12"), Spec("shaky", "x86_64-6.1", reboots=True)]

# A node ends itself when its controller is silent for 30 s.
SILENCE_TIMEOUT = 60
RUN_TIMEOUT = 240
REPETITIONS = 3

PLAN = f"""
version = 1
name = "faults"

[topology]
roles = ["sender", "receiver"]

[ping]
from = "sender"
to = "receiver"
protocol = "udp"
rate = "50pps"
duration = "8s"

[trials]
repetitions = {REPETITIONS}
"""


def run_with_fault(rig, sender, receiver, fault):
    """Runs the plan and causes a fault in its first trial; returns the trials."""
    fleet = devices(rig)
    plan = fleet.write_plan("faults", PLAN)
    process = fleet.start("run", plan, "--on", f"sender={sender},receiver={receiver}")
    try:
        wait_for_probes(rig["steady"])
        fault()
        output, _ = process.communicate(timeout=RUN_TIMEOUT)
    except BaseException:
        process.kill()
        print(process.communicate()[0])
        raise
    trials = fleet.json("show", "last")["trials"]
    print(output, [(trial["state"], trial["reason"]) for trial in trials])
    return trials


def check(trials, role):
    """One trial failed with a reason that names the node; the others finished, and lost nothing."""
    failed = [trial for trial in trials if trial["state"] == "failed"]
    finished = [trial for trial in trials if trial["state"] == "finished"]
    assert len(failed) == 1 and len(finished) == REPETITIONS - 1, [trial["state"] for trial in trials]
    assert role in failed[0]["reason"], failed[0]["reason"]
    for trial in finished:
        packets = trial["packets"]
        assert packets["received"] + packets["late"] == packets["sent"] == 400, packets


def test_restart_of_the_receiver_fails_one_trial(rig):
    check(run_with_fault(rig, "steady", "shaky", rig["shaky"].reset), "receiver")


def test_pulled_cable_of_the_sender_fails_one_trial(rig):
    def pull():
        rig["shaky"].set_link("management", False)
        # Longer than ssh waits for an answer: three intervals of 5 s.
        time.sleep(20)
        rig["shaky"].set_link("management", True)

    check(run_with_fault(rig, "shaky", "steady", pull), "sender")


def test_nothing_of_a_lost_connection_keeps_running(rig):
    deadline = time.monotonic() + SILENCE_TIMEOUT
    while found := [line for guest in rig.guests.values() for line in leftovers.leftovers(guest)]:
        assert time.monotonic() < deadline, found
        time.sleep(1)


def test_devices_are_removed(rig):
    devices(rig).remove_all()
