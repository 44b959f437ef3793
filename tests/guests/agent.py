"""The agent of a guest, with a spool of its own."""

import subprocess
import time

START_TIMEOUT = 30
STOP_TIMEOUT = 20
SPOOL = "/var/lib/dwell-agent"
PORT = 8620


class Agent:
    """Runs the agent in a guest, and ends it at the end of the block. Records stay in the spool until `remove`."""

    def __init__(self, guest):
        self.guest = guest

    def __enter__(self):
        lines = [f'node = "{self.guest.name}"', "[reflect]", f'urls = ["stamp://0.0.0.0:{PORT}"]']
        self.guest.write("/run/agent.toml", "\n".join(lines))
        # The shell of the connection becomes the agent, so its process number is that of the shell.
        program = "/host/debug/dwell-node agent --config /run/agent.toml"
        start = f"echo $$ >/run/agent; exec {program} 2>/run/agent.log >/dev/null"
        self.process = self.guest.start_command(start, stdin=subprocess.DEVNULL)
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT
        while self.guest.run(f"ss -lun | grep -q :{PORT}", check=False).returncode:
            log = self.guest.output("cat /run/agent.log", check=False)
            assert time.monotonic() < deadline, f"the agent does not reflect within {START_TIMEOUT} s: {log}"
            time.sleep(0.2)

    def __exit__(self, *_):
        self.guest.run("kill -TERM $(cat /run/agent); rm /run/agent*", check=False)
        self.process.wait(timeout=STOP_TIMEOUT)


def remove_spool(guest):
    guest.run(f"rm -rf {SPOOL}")
