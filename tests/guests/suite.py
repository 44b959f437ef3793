"""Suites: tests that share guests.

A suite is a module of `suites`. Its `TARGET` is the `make` target that runs it (default: test-guests). Its `GUESTS`
lists the guests, which boot first. Its functions `test_NAME(rig)` run in the order of the file, each in at most
`TIMEOUT` seconds. `Skip` skips a test. After the tests, nothing of dwell may run or listen in a guest (leftovers.py).
"""

import importlib
import inspect
import os
import signal
import sys
import time
import traceback

import leftovers
from boot import Rig
from packages import ROOT

DEFAULT_TIMEOUT = 180
DEFAULT_TARGET = "test-guests"


class Skip(Exception):
    """A test that cannot run here, with the reason."""


class Timeout(BaseException):
    """A test that takes too long. Not an `Exception`, so that no test catches it."""


def names():
    return sorted(path.stem for path in (ROOT / "tests/guests/suites").glob("[a-z]*.py"))


def targets():
    """Returns the suites of each target."""
    found = {}
    for name in names():
        found.setdefault(getattr(module_of(name), "TARGET", DEFAULT_TARGET), []).append(name)
    return found


def module_of(name):
    return importlib.import_module(f"suites.{name}")


def suites_of(chosen):
    """Returns the suites of these names, each that of a suite or of a target."""
    of_target = targets()
    return [suite for word in chosen for suite in of_target.get(word, [word])]


def images(chosen):
    """Returns the images that the guests of these suites need."""
    return sorted({spec.image for name in suites_of(chosen) for spec in module_of(name).GUESTS})


def run(chosen, only=None):
    """Runs suites, or all of a target, or their tests whose name contains `only`. Prints one line per test; returns
    an exit code."""
    counts = {"ok": 0, "FAILED": 0, "SKIP": 0}
    skipped = set()
    for name in suites_of(chosen):
        for test, result, detail in run_suite(name, only):
            counts[result] += 1
            if result == "SKIP":
                skipped.add(f"{name}::{test}")
                print(f"SKIP {name}::{test}: {detail}", flush=True)
            else:
                print(f"test {name}::{test} ... {result}{detail}", flush=True)
    print(f"\n{counts['ok']} passed, {counts['FAILED']} failed, {counts['SKIP']} skipped")
    unexpected = sorted(skipped - expected_skips())
    if unexpected and os.environ.get("CI"):
        print(f"skipped, and not in tests/expected-skips.txt: {' '.join(unexpected)}")
    return bool(counts["FAILED"] or (unexpected and os.environ.get("CI")) or not any(counts.values()))


def expected_skips():
    lines = (ROOT / "tests/expected-skips.txt").read_text().splitlines()
    return {line.split("#")[0].strip() for line in lines}


def run_suite(name, only):
    """Yields (test, `ok`, `FAILED` or `SKIP`, detail) of each test of a suite."""
    module = module_of(name)
    functions = [function for function in vars(module).values() if inspect.isfunction(function)]
    tests = [function for function in functions if function.__name__.startswith("test_")]
    tests = [test for test in tests if only is None or only in test.__name__]
    timeout = getattr(module, "TIMEOUT", DEFAULT_TIMEOUT)
    started = time.monotonic()
    if not tests:
        return
    with Rig() as rig:
        try:
            rig.boot(*module.GUESTS)
        except Exception as error:
            yield "boot", "FAILED", f"\n{indented(str(error))}"
            return
        for test in tests:
            yield test.__name__.removeprefix("test_"), *run_test(test, rig, timeout)
        yield "nothing_is_left", *run_test(leftovers.check, rig, timeout)
    print(f"guests: suite {name} took {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)


def run_test(test, rig, timeout):
    started = time.monotonic()
    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(timeout)
    try:
        test(rig)
        return "ok", f" ({time.monotonic() - started:.1f} s)"
    except Skip as reason:
        return "SKIP", str(reason)
    except Timeout:
        return "FAILED", f"\n    no end within {timeout} s\n{indented(traceback.format_exc())}"
    except Exception:
        return "FAILED", f"\n{indented(traceback.format_exc())}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def interrupt(*_):
    raise Timeout


def indented(text):
    return "".join(f"    {line}\n" for line in text.rstrip().splitlines()).rstrip("\n")
