"""Every command of the README on kernels 6.1 and 6.12: it works, or exits with 4 and names what the kernel lacks.

`MISSING` lists what each kernel lacks. A feature that appears or disappears fails a test, so the table and
docs/kernels.md stay true.
"""

import base64
import csv
import functools
import io
import json
import re
import shutil
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from boot import Spec
from fleet import program
from packages import ROOT

TIMEOUT = 900
KERNELS = ("6.1", "6.12")
GUESTS = tuple(
    Spec(f"linux-{kernel.replace('.', '-')}", f"x86_64-{kernel}", memory=1024, modules=("tun",)) for kernel in KERNELS
)
EXAMPLE_TIMEOUT = 400
# An example that takes longer is named, in seconds.
LONG_EXAMPLE = 15
# `ready FILE TEXT` waits until a background process has printed a text to a file.
PRELUDE = """
ready() {
    for attempt in $(seq 600); do
        grep -q "$2" "$1" && return 0
        sleep 0.1
    done
    cat "$1"
    return 1
}
"""

# What a kernel lacks: the text that dwell prints, by the name of a command or an ability.
NETFILTER = "netfilter needs Linux 6.4 with CONFIG_NETFILTER_BPF_LINK"
TCX = "tcx needs Linux 6.6"
MISSING = {
    "6.1": {
        "trace --hooks netfilter": NETFILTER,
        "trace --hooks tcx": TCX,
        "eBPF: load a netfilter program": "Invalid argument",
    },
    "6.12": {},
}
# Abilities with a condition of their use.
LIMITED = {
    "6.1": {
        "reflect --engine xdp": "counts merged datagrams as one",
        "ping --stamps driver": TCX,
    },
    "6.12": {},
}
# Abilities that a virtual machine with one processor lacks, whatever its kernel.
NOT_IN_A_GUEST = {"no idle states (ping --no-idle)"}

# A command line for each row of the README's table of commands, and for each engine that needs eBPF.
COMMANDS = {
    "ping": "dwell ping -c 50 -i 0.02 icmp://127.0.0.1",
    "ping --explain": "dwell ping -c 200 -i 0.01 --explain icmp://127.0.0.1",
    "ping --stamps driver": """
        dwell lab up line:2 --name driver
        dwell lab exec --lab driver n1 -- dwell ping -c 50 -i 0.02 --stamps driver --json icmp://n2 >ping.json
        dwell lab down driver
        grep -q '"rtt_driver_ns"' ping.json""",
    "range calibrate": "dwell range calibrate icmp://127.0.0.1 --distance 1m --output ap.json",
    "range": "dwell range icmp://127.0.0.1 --calibration ap.json",
    "reflect": """
        dwell reflect udp://127.0.0.1:7000 >near 2>&1 &
        ready near 'listening on'
        dwell ping -c 50 -i 0.02 udp://127.0.0.1:7000
        kill -INT $!
        wait $!""",
    "reflect --engine xdp": """
        dwell lab up line:2 --name driver
        dwell lab exec --lab driver n2 -- dwell reflect --engine xdp --interface n1 udp://0.0.0.0:7000 >far 2>&1 &
        ready far 'listening on'
        dwell lab exec --lab driver n1 -- dwell ping -c 50 -i 0.02 udp://n2:7000
        kill -INT $!
        wait $!
        dwell lab down driver""",
    "relay": """
        dwell lab up line:3 --name relay
        dwell lab exec --lab relay n3 -- dwell reflect udp://0.0.0.0:7000 >far 2>&1 &
        dwell lab exec --lab relay n2 -- dwell relay --listen udp://0.0.0.0:7000 --to udp://n3:7000 >middle 2>&1 &
        ready far 'listening on'
        ready middle relaying
        dwell lab exec --lab relay n1 -- dwell ping -4 -c 50 -i 0.02 udp://n2:7000
        dwell lab down relay""",
    "relay --engine xdp": """
        dwell lab up line:3 --name relay
        dwell lab exec --lab relay n3 -- dwell reflect udp://0.0.0.0:7000 >far 2>&1 &
        dwell lab exec --lab relay n2 -- dwell relay --mode translate --engine xdp \\
            --listen udp://0.0.0.0:7000 --to udp://n3:7000 >middle 2>&1 &
        ready far 'listening on'
        ready middle relaying
        dwell lab exec --lab relay n1 -- dwell ping -4 -c 50 -i 0.02 udp://n2:7000
        dwell lab down relay""",
    "pace": "dwell pace --rate 1Mbit/s --size 200B --count 20 --repeat 3",
    "pace sink": """
        dwell pace sink udp://127.0.0.1:5001 >sink 2>&1 &
        ready sink 'stamping packets'
        dwell pace udp://127.0.0.1:5001 --sink --rate 1Mbit/s --size 200B --count 20 --repeat 3
        kill -INT $!
        wait $!""",
    "load cpu": "dwell load cpu --level 50% --duration 1s",
    "load sink": """
        dwell load sink udp://127.0.0.1:5001 >sink 2>&1 &
        ready sink 'listening on'
        dwell load traffic udp://127.0.0.1:5001 --rate 100pps --size 100B --count 100
        kill -INT $!
        wait $!""",
    "load traffic": "dwell load traffic udp://127.0.0.1:9 --rate 100pps --size 100B --count 100",
    "node-sim": """
        dwell node-sim text+udp://127.0.0.1:7010 >simulated 2>&1 &
        ready simulated 'listening on'
        dwell ping -c 10 -i 0.05 text+udp://127.0.0.1:7010
        kill -INT $!
        wait $!""",
    "agent": """
        printf 'node = "a"\\nspool = "spool"\\n[[entries]]\\nname = "self"\\nreflector = "self"\\n' >agent.toml
        printf 'target = "icmp://127.0.0.1"\\ninterval = "100ms"\\n' >>agent.toml
        dwell agent --config agent.toml >agent 2>&1 &
        ready agent 'is running'
        kill -INT $!
        wait $!
        ls spool/records/5m/*.rec""",
    "trace": "dwell trace --flow 'udp port 5001' --interface lo --duration 1s",
    "trace --hooks netfilter": "dwell trace --flow udp --hooks netfilter --duration 1s",
    "trace --hooks tcx": "dwell trace --flow udp --hooks tcx --interface lo --duration 1s",
    "trace --hooks xdp": "dwell trace --flow udp --hooks xdp --interface lo --duration 1s",
    "lab up": "dwell lab up line:3 --name small",
    "lab exec": "dwell lab exec --lab small n1 -- ping -c 3 -i 0.2 n3",
    "lab list": "dwell lab list",
    "lab routes": "dwell lab routes small",
    "lab down": "dwell lab down small",
    "doctor": "dwell doctor",
    "device add": "dwell device add here root@127.0.0.1",
    "device check": """
        printf '#!/bin/sh\\nfor last; do :; done\\nexec sh -c "$last"\\n' >ssh
        chmod +x ssh
        DWELL_NODES=/host/nodes DWELL_SSH_COMMAND=$PWD/ssh dwell device check here""",
    "device list": "dwell device list --verdicts",
    "device show": "dwell device show here",
    "device edit": "dwell device edit here --model guest",
    "device remove": "DWELL_SSH_COMMAND=$PWD/ssh dwell device remove here --yes",
    "run": """
        printf 'version = 1\\nname = "quick"\\n[topology]\\nlab = "line:2"\\n[ping]\\nfrom = "n1"\\nto = "n2"\\n' >quick.toml
        printf 'rate = "100pps"\\nduration = "1s"\\n' >>quick.toml
        dwell run quick.toml
        dwell run quick.toml""",
    "serve": """
        dwell serve --listen 127.0.0.1:8080 >serve 2>&1 &
        ready serve 'listening on'
        exec 3<>/dev/tcp/127.0.0.1/8080
        printf 'GET /api/v1/runs HTTP/1.0\\r\\nHost: 127.0.0.1:8080\\r\\n\\r\\n' >&3
        grep -q 'dwell.runs/1' <&3
        kill -INT $!
        wait $!""",
    "runs": "dwell runs",
    "show": "dwell show last",
    "note": "dwell note last 'in a guest'",
    "report": "dwell report last -o quick.html",
    "compare": "dwell compare \"$(date -u +%Y%m%d)-1\" last",
    "replay": "dwell replay --list",
    "audit": "printf 'latency_ms\\n1.5\\n2.5\\n3.5\\n' >table.csv && dwell audit table.csv",
    "predict": """
        printf 'version = 1\\nname = "yard"\\n[nodes]\\na = {}\\nb = {}\\n[nodes.r.model]\\ndelay = "80us"\\n' >yard.toml
        printf 'quantiles = { p100 = "2ms" }\\n[[links]]\\nbetween = ["a", "r"]\\n' >>yard.toml
        printf '[[links]]\\nbetween = ["r", "b"]\\n[[flows]]\\nfrom = "a"\\nto = "b"\\n' >>yard.toml
        printf 'size = "200B"\\nrate = "100pps"\\n' >>yard.toml
        dwell predict yard.toml --deadline 5ms""",
    "hub": """
        dwell hub --embedded >hub 2>&1 &
        ready hub 'hub started'
        kill -INT $!
        wait $!""",
    "hub schedule check": """
        printf 'version = 1\\n[nodes.a]\\naddress = "192.0.2.1"\\n[nodes.b]\\naddress = "192.0.2.2"\\n' >mesh.toml
        printf '[[measure]]\\nname = "mesh"\\nmesh = ["a", "b"]\\n' >>mesh.toml
        dwell hub schedule check mesh.toml""",
    "hub schedule apply": "dwell hub schedule apply mesh.toml",
    "hub nodes": "dwell hub nodes",
    "import": "ping -c 20 -i 0.01 127.0.0.1 >ping.txt && dwell import ping.txt",
    "export": "dwell export last --format csv -o ping.csv",
    "delete": "dwell delete last --yes",
    "worker": "dwell worker </dev/null | head -c 64 | grep -q hello",
    "help terms": "dwell help terms",
    "completions": "dwell completions bash",
}


def kernel_of(guest):
    return guest.image.name.partition("-")[2]


def in_every_guest(rig, test):
    """Runs `test(guest)` in all guests at the same time; returns their results by kernel."""
    guests = list(rig.guests.values())
    strip()
    with ThreadPoolExecutor(len(guests)) as pool:
        list(pool.map(install, guests))
        return dict(zip(map(kernel_of, guests), pool.map(test, guests)))


@functools.cache
def install(guest):
    """Copies `dwell` into the guest's memory: starting it from the host's folder takes long."""
    guest.run("mkdir -p /tmp/bin && cp /host/guests/features-dwell /tmp/bin/dwell", timeout=120)


@functools.cache
def strip():
    """Copies `dwell` into the folder that guests see, without debug information."""
    small = ROOT / "target/guests/features-dwell"
    small.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(program(), small)
    subprocess.run(["strip", str(small)], check=True)


def type_in(guest, script, folder="/tmp/work"):
    """Types a script in a folder of the guest, as root; returns its exit code and all that it prints. The shell is bash,
    because that of busybox uses its own ip."""
    started = time.monotonic()
    done = guest.run(
        f"mkdir -p {folder} && cd {folder} && cat >script && "
        f"PATH=/tmp/bin:$PATH timeout -s KILL {EXAMPLE_TIMEOUT} bash -e script 2>&1",
        stdin=PRELUDE + script,
        check=False,
        timeout=EXAMPLE_TIMEOUT + 30,
    )
    if (took := time.monotonic() - started) > LONG_EXAMPLE:
        print(f"{guest.image.name}: {took:.0f} s: {script.strip().splitlines()[0]}", file=sys.stderr, flush=True)
    # Background processes of a script that failed must not disturb the next one.
    if done.returncode:
        guest.run("killall -q -9 dwell; /tmp/bin/dwell lab down --all >/dev/null 2>&1; true", check=False, timeout=60)
    return done.returncode, done.stdout


def check(what, kernel, code, printed, allowed=(0,)):
    """Asserts that a command worked, or that it names what `MISSING` says."""
    reason = MISSING[kernel].get(what)
    if reason is None:
        assert code in allowed, f"{what} on Linux {kernel}: exit code {code}\n{printed}"
    else:
        assert code == 4, f"{what} on Linux {kernel}: exit code {code}, not 4: update MISSING\n{printed}"
        assert reason in printed, f"{what} on Linux {kernel} does not say '{reason}':\n{printed}"


def check_all(results):
    """Checks all results, and raises one AssertionError with all failures."""
    failures = []
    for result in results:
        try:
            check(*result)
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


def examples(document):
    """The blocks of a document that are marked `sh example`, as in dwell/tests/readme.rs."""
    return re.findall(r"^```sh example\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)


def commands_of(names):
    """Returns the commands of a row of the README's table; `dwell lab up`, `exec` are `lab up` and `lab exec`."""
    first, *others = [name.removeprefix("dwell ") for name in names]
    group = first.rpartition(" ")[0]
    return [first] + [f"{group} {name}" if group and " " not in name else name for name in others]


def test_kernels_are_the_ones_named(rig):
    found = in_every_guest(rig, lambda guest: guest.output("uname -r"))
    assert all(release.startswith(f"{kernel}.") for kernel, release in found.items()), found


def test_examples_of_the_documents_work(rig):
    documents = {name: examples((ROOT / name).read_text()) for name in ("README.md", "docs/guide.md")}
    assert all(len(found) >= 5 for found in documents.values()), documents

    def type_all(guest):
        return {
            (name, number): type_in(guest, example, f"/tmp/{name.replace('/', '-')}")
            for name, found in documents.items()
            for number, example in enumerate(found)
        }

    # Delays under emulation exceed any limit.
    check_all(
        (f"{name} {number}", kernel, code, printed, (0, 3, 5) if "--fail-if" in documents[name][number] else (0,))
        for kernel, results in in_every_guest(rig, type_all).items()
        for (name, number), (code, printed) in results.items()
    )


def test_every_command_works_or_names_what_is_missing(rig):
    rows = re.findall(r"^\| (`dwell .*?) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in commands_of(re.findall(r"`([^`]*)`", row))}
    assert len(named) > 20 and named <= set(COMMANDS), named - set(COMMANDS)

    def type_all(guest):
        return {name: type_in(guest, script) for name, script in COMMANDS.items()}

    check_all(
        (name, kernel, code, printed)
        for kernel, results in in_every_guest(rig, type_all).items()
        for name, (code, printed) in results.items()
    )


def test_trace_uses_the_hooks_that_the_kernel_has(rig):
    script = """
        dwell lab up line:3 --name hooks >&2
        dwell lab exec --lab hooks n2 -- dwell trace --flow 'udp port 7001' --json >trace.json 2>trace.err &
        ready trace.err "tracing '"
        dwell lab exec --lab hooks n1 -- dwell load traffic -4 udp://n3:7001 --rate 100pps --size 100B --count 100 >&2
        kill -INT $!
        wait $!
        dwell lab down hooks >&2
        cat trace.json"""
    points = {
        "6.1": ["rx_driver"],
        "6.12": ["rx_driver", "rx_tcx", "pre_routing", "post_routing", "tx_tcx"],
    }
    for kernel, (code, printed) in in_every_guest(rig, lambda guest: type_in(guest, script)).items():
        assert code == 0, f"{kernel}: {printed}"
        found = json.loads(printed[printed.index("{\n") :] if printed.lstrip()[0] != "{" else printed)
        assert found["parameters"]["points"] == points[kernel], found
        assert found["values"]["packets"] == 100, found
        assert found["values"]["events"] == 100 * len(points[kernel]), found
        notes = {warning["on"]: warning["text"] for warning in found["trust"]["warnings"] if warning["code"] == "old-kernel"}
        expected = {name.rpartition(" ")[2]: text for name, text in MISSING[kernel].items() if name.startswith("trace ")}
        assert set(notes) == set(expected) and all(expected[on] in notes[on] for on in notes), notes


def test_doctor_states_hook_by_hook_what_is_missing(rig):
    found = in_every_guest(rig, lambda guest: type_in(guest, "dwell doctor --json 2>/dev/null"))
    for kernel, (code, printed) in found.items():
        assert code == 0, printed
        abilities = {row["name"]: row for row in json.loads(printed)["abilities"]}
        missing = {name: row["reason"] for name, row in abilities.items() if row["available"] is False}
        missing = {name: reason for name, reason in missing.items() if name not in NOT_IN_A_GUEST}
        expected = {name: text for name, text in MISSING[kernel].items() if name in abilities}
        assert set(missing) == set(expected), f"{kernel}: {missing}"
        assert all(expected[name] in missing[name] for name in missing), f"{kernel}: {missing}"
        limited = {name: row["reason"] for name, row in abilities.items() if name in LIMITED[kernel]}
        assert all(text in (limited[name] or "") for name, text in LIMITED[kernel].items()), f"{kernel}: {limited}"
        untested = [name for name, row in abilities.items() if row["available"] is None]
        assert not untested, f"{kernel}: {untested}"


# A pair of interfaces in two network namespaces, with fixed neighbours: etf drops address resolution.
PAIR = """
    ip netns del a 2>/dev/null || true
    ip netns del b 2>/dev/null || true
    ip netns add a
    ip netns add b
    ip -n a link add va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b netns b
    ip -n a link set va up
    ip -n b link set vb up
    ip -n a address add 10.95.0.1/24 dev va
    ip -n b address add 10.95.0.2/24 dev vb
    ip -n a neighbour replace 10.95.0.2 lladdr 02:00:00:00:00:0b dev va nud permanent
    ip -n b neighbour replace 10.95.0.1 lladdr 02:00:00:00:00:0a dev vb nud permanent
"""
# Gaps of 10 ms: a timestamp of another packet is off by at least this.
GAP_NS = 10_000_000
PACKETS = 60
TRAINS = 3


def pace_by(guest, qdisc):
    """Sends by txtime through a queueing discipline, past a capture; returns rows by id, and times of capture by id."""
    code, printed = type_in(guest, f"""{PAIR}
        ip netns exec a tc qdisc replace dev va root {qdisc}
        rm -rf dwell-data pace.seg capture
        ip netns exec b tcpdump -Z root -i vb -n -U --time-stamp-precision=nano -w capture udp port 9 2>tcpdump.err &
        until grep -q listening tcpdump.err; do sleep 0.2; done
        # The timer of a stalled guest is late, and etf then drops every test packet.
        for attempt in 1 2 3 4 5; do
            ip netns exec a dwell pace udp://10.95.0.2:9 --engine txtime --pattern train --size 200B \\
                --rate 160kbit/s --count {PACKETS} --repeat {TRAINS} --samples pace.seg --quiet >pace.txt 2>&1 && break
            cat pace.txt
        done
        sleep 1
        kill -INT $!
        wait $!
        dwell import pace.seg >/dev/null
        dwell export last --format csv -o rows.csv 2>/dev/null
        ip netns del a
        ip netns del b
        echo ROWS
        cat rows.csv
        echo CAPTURE
        base64 capture""")
    assert code == 0 and "\nCAPTURE\n" in printed, f"{kernel_of(guest)}, {qdisc}: {code}\n{printed}"
    rows, capture = printed.split("ROWS\n")[1].split("CAPTURE\n")
    return {int(row["id"]): row for row in csv.DictReader(io.StringIO(rows))}, captured(base64.b64decode(capture))


def captured(data):
    """Times of the packets of a capture (pcap, nanoseconds), by the number in dwell's mark."""
    times, at = {}, 24
    while at + 16 <= len(data):
        seconds, nanoseconds, length, _ = struct.unpack("<IIII", data[at : at + 16])
        payload = data[at + 16 : at + 16 + length][14 + 20 + 8 :]
        # The test packets of the engine are empty.
        if len(payload) >= 16:
            times[int.from_bytes(payload[8:16], "big")] = seconds * 10**9 + nanoseconds
        at += 16 + length
    return times


def assert_joined(kernel, qdisc, rows, times):
    """Every timestamp is that of its packet: the other end of the veth receives it just after it left."""
    where = f"Linux {kernel}, {qdisc}"
    stamped = {number: int(row["tx_kernel_ns"]) for number, row in rows.items() if row["tx_kernel_ns"]}
    assert len(rows) == PACKETS * TRAINS and len(stamped) >= PACKETS // 2, f"{where}: {len(stamped)} of {len(rows)}"
    assert set(stamped) == set(times) & set(rows), f"{where}: {set(stamped) ^ (set(times) & set(rows))}"
    delays = {number: times[number] - at for number, at in stamped.items()}
    assert all(0 <= delay < GAP_NS // 2 for delay in delays.values()), f"{where}: {delays}"


def test_txtime_by_fq_joins_every_timestamp(rig):
    for kernel, (rows, times) in in_every_guest(rig, lambda guest: pace_by(guest, "fq")).items():
        assert_joined(kernel, "fq", rows, times)
        assert all(row["tx_kernel_ns"] for row in rows.values()), f"fq of Linux {kernel} drops no packet"


def test_txtime_by_etf_joins_every_timestamp(rig):
    qdisc = "etf clockid CLOCK_TAI delta 1900000"
    for kernel, (rows, times) in in_every_guest(rig, lambda guest: pace_by(guest, qdisc)).items():
        assert_joined(kernel, "etf", rows, times)


def test_etf_without_a_neighbour_is_named(rig):
    script = f"""{PAIR}
        ip -n a neighbour flush dev va nud permanent
        ip netns exec a tc qdisc replace dev va root etf clockid CLOCK_TAI delta 1900000
        code=0
        ip netns exec a dwell pace udp://10.95.0.2:9 --engine txtime --rate 1Mbit/s || code=$?
        ip netns del a
        ip netns del b
        exit $code"""
    for kernel, (code, printed) in in_every_guest(rig, lambda guest: type_in(guest, script)).items():
        assert code == 4 and "ip neighbour replace ADDRESS" in printed, f"{kernel}: {code}\n{printed}"


def test_netem_before_the_timestamp_is_noted(rig):
    script = """
        dwell lab up line:2 --name late --delay 20ms --mechanism netem >&2
        dwell lab exec --lab late n1 -- dwell ping -c 50 -i 0.02 --json icmp://n2 >late.json 2>/dev/null
        dwell lab down late >&2
        cat late.json"""
    for kernel, (code, printed) in in_every_guest(rig, lambda guest: type_in(guest, script)).items():
        assert code == 0, printed
        found = json.loads(printed[printed.index("{") :])
        assert "netem-before-timestamp" in {warning["code"] for warning in found["trust"]["warnings"]}, found["trust"]
        # The delay of one of the two directions.
        kernel_ns, program_ns = (found["metrics"][name]["min"] for name in ("rtt_kernel_ns", "rtt_ns"))
        assert 20_000_000 <= kernel_ns < 40_000_000 <= program_ns, f"{kernel}: {kernel_ns}, {program_ns}"
