"""What still runs or listens in a guest after the tests."""

import time

# The system of a guest itself: init, the SSH server, and the shell that looks.
SYSTEM = {"/usr/bin/busybox", "/usr/bin/dash", "/usr/sbin/dropbear"}
# A node ends itself within one second of the end of its connection.
GRACE = 5

LIST_PROGRAMS = 'for process in /proc/[0-9]*; do readlink $process/exe; done'
# Local address and state of each socket. A packet socket has neither.
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
SSH_PORT = "0016"


def check(rig):
    """Raises an AssertionError that names programs and sockets which are not part of the guest's system."""
    deadline = time.monotonic() + GRACE
    while found := [line for guest in rig.guests.values() for line in leftovers(guest)]:
        assert time.monotonic() < deadline, "left in the guests:\n" + "\n".join(found)
        time.sleep(0.5)


def leftovers(guest):
    programs = set(guest.output(LIST_PROGRAMS, check=False).splitlines()) - SYSTEM
    sockets = {line for line in guest.output(LIST_SOCKETS).splitlines() if not is_of_ssh(line)}
    return [f"{guest.name}: {what}" for what in sorted(programs | sockets)]


def is_of_ssh(line):
    protocol, *rest = line.split()
    return protocol.startswith("tcp") and rest[0].rpartition(":")[2] == SSH_PORT
