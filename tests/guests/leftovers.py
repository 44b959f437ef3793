"""What runs or listens in a guest after the tests, and did not when it had booted."""

import re
import time
from collections import Counter

# A node ends itself within one second of the end of its connection.
GRACE = 5

# Program and arguments of each process, without threads of the kernel. The SSH session that lists is part of the list.
LIST_PROGRAMS = r"""
for process in /proc/[0-9]*; do
    program=$(readlink $process/exe) && echo "$program: $(tr '\0\n' '  ' <$process/cmdline)"
done 2>/dev/null
"""
# Protocol, local address and state of each socket. A packet socket has no address.
LIST_SOCKETS = """
for protocol in tcp tcp6 udp udp6 raw raw6; do
    while read -r _ local _ state _; do
        [ "$local" = local_address ] || echo "$protocol $local $state"
    done <"/proc/net/$protocol"
done 2>/dev/null
while read -r socket _; do
    [ "$socket" = sk ] || echo packet
done </proc/net/packet
"""
# The SSH server passes a file descriptor to the process of a session. Its number depends on other connections.
SESSION_DESCRIPTOR = re.compile(r"(dropbear .* -2) \d+")
SSH_PORT = "0016"
# State of a closed connection, which belongs to no process.
TIME_WAIT = "06"


def check(rig):
    """Raises an AssertionError that names programs and sockets which are not part of the guest's system."""
    deadline = time.monotonic() + GRACE
    while found := [line for guest in rig.guests.values() for line in leftovers(guest)]:
        assert time.monotonic() < deadline, "left in the guests:\n" + "\n".join(found)
        time.sleep(0.5)


def programs(guest):
    """Counts the processes of a guest by program and arguments."""
    lines = guest.output(LIST_PROGRAMS, check=False).splitlines()
    return Counter(SESSION_DESCRIPTOR.sub(r"\1", line) for line in lines)


def baseline(guest):
    """Counts the processes of a guest that has booted: init, the SSH server, and the SSH session that lists them. They
    are the same after a reset."""
    # A process that is in one list only is about to end, such as that of an earlier connection.
    found = programs(guest) & programs(guest)
    assert any("dropbear" in program for program in found), f"{guest.name}: no list of processes: {found}"
    return found


def leftovers(guest):
    extra = programs(guest) - guest.baseline
    sockets = {line for line in guest.output(LIST_SOCKETS).splitlines() if not is_expected(line)}
    return [f"{guest.name}: {what}" for what in [*sorted(extra.elements()), *sorted(sockets)]]


def is_expected(line):
    protocol, *rest = line.split()
    return protocol.startswith("tcp") and (rest[0].endswith(f":{SSH_PORT}") or rest[1] == TIME_WAIT)
