"""A reflector in a guest."""

import time

START_TIMEOUT = 30
KILOBYTE = 1 << 10


class Reflector:
    """Runs a command of the guest that executes `reflect`, and interrupts it at the end of the block."""

    def __init__(self, guest, command):
        self.guest = guest
        self.command = command

    def __enter__(self):
        # The shell of the connection becomes the reflector, so its process number is that of the shell.
        start = f"echo $$ >/run/reflector; exec {self.command} 2>/run/reflector.log >/dev/null"
        self.process = self.guest.start_command(start)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while "listening" not in (log := self.guest.output("cat /run/reflector.log", check=False)):
            assert time.monotonic() < deadline, f"the reflector does not listen within {START_TIMEOUT} s: {log}"
            time.sleep(0.2)

    def memory(self):
        """Resident memory in bytes."""
        line = self.guest.output("grep VmRSS /proc/$(cat /run/reflector)/status")
        return int(line.split()[1]) * KILOBYTE

    def __exit__(self, *_):
        self.guest.run("kill -INT $(cat /run/reflector); rm /run/reflector*", check=False)
        self.process.wait(timeout=10)
