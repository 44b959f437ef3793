"""Guests: qemu processes that boot an image, and SSH into them."""

import base64
import json
import os
import platform
import shlex
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import image
import leftovers
import network
from packages import CACHE, ROOT

BOOT_TIMEOUT = 120
PROBE_TIMEOUT = 15
SSH_TIMEOUT = 30
FOLDER_PREFIX = "dwell-guests-"
# qemu's program and machine, and the console, of each Debian architecture. Emulated CMPXCHG16B (cx16) of qemu 7.2
# sometimes leaves flags that are the low half of RAX, and the kernel's allocator then dereferences a wrong pointer.
MACHINES = {
    "amd64": (["qemu-system-x86_64", "-M", "q35", "-cpu", "max,-cx16"], "ttyS0"),
    "arm64": (["qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "cortex-a53"], "ttyAMA0"),
    "armhf": (["qemu-system-arm", "-M", "virt,highmem=off", "-cpu", "cortex-a15"], "ttyAMA0"),
}
# Architectures of the host, as Debian calls them.
HOST = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())


class GuestError(Exception):
    """A guest that does not boot, or a command in it that fails or takes too long."""


@dataclass(frozen=True)
class Spec:
    """A guest to boot: name, image, memory in MiB, kernel modules, more arguments of qemu with `{folder}` for the
    folder of the rig, and whether a reboot restarts it (otherwise the guest ends)."""

    name: str
    image: str
    memory: int = 512
    modules: tuple = ()
    arguments: tuple = ()
    reboots: bool = False


class Rig:
    """Guests, their networks, and the files with which the host reaches them by SSH. Removed by `close`."""

    def __init__(self):
        remove_abandoned_folders()
        # A short path, because addresses of Unix sockets hold at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix=folder_prefix()))
        self.guests = {}
        self.key = self.folder / "key"
        self.ssh_config = self.folder / "ssh_config"
        generate_key(self.key)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, name):
        return self.guests[name]

    def boot(self, *specs):
        """Boots guests at the same time; returns them when all answer."""
        images = {spec.image: image.build(spec.image) for spec in specs}
        accelerators = {name: accelerator(built) for name, built in images.items()}
        number = network.FIRST_GUEST + len(self.guests)
        started = [
            Guest(self, spec, images[spec.image], accelerators[spec.image], number + place)
            for place, spec in enumerate(specs)
        ]
        self.guests.update({guest.name: guest for guest in started})
        self.write_ssh_config()
        for guest in started:
            guest.start()
        for guest in started:
            guest.wait_until_ready()
            guest.baseline = leftovers.baseline(guest)
        return started

    def write_ssh_config(self):
        """Writes ssh_config(5) with the name of each guest, and its host key."""
        hosts = self.folder / "known_hosts"
        hosts.write_text("".join(f"{guest.name} {guest.host_key}\n" for guest in self.guests.values()))
        self.ssh_config.write_text(
            "".join(
                f"Host {guest.name}\n    HostName {guest.address}\n    HostKeyAlias {guest.name}\n"
                for guest in self.guests.values()
            )
            + f"""Host *
    User root
    IdentityFile {self.key}
    IdentitiesOnly yes
    UserKnownHostsFile {hosts}
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
    ConnectTimeout 10
"""
        )

    def close(self):
        for guest in self.guests.values():
            guest.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def folder_prefix():
    """Returns the start of the name of a temporary folder of this process."""
    return f"{FOLDER_PREFIX}{os.getpid()}-"


def remove_abandoned_folders():
    """Removes the folders of processes that were killed. Guests and networks end with their process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}[0-9]*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


class Guest:
    """A guest of a rig. `address` is its address on the management network, `test_address` that on the other."""

    def __init__(self, rig, spec, built, accelerated, number):
        self.rig, self.spec, self.image, self.number = rig, spec, built, number
        self.name, self.accelerator = spec.name, accelerated
        self.address, self.test_address = (
            network.addresses(bridge, number)[0].split("/")[0] for bridge in (network.MANAGEMENT, network.TEST)
        )
        self.taps = {bridge: f"{bridge[:4]}{number}" for bridge in (network.MANAGEMENT, network.TEST)}
        self.process = None
        # Processes of the booted guest, as `leftovers.baseline` counts them.
        self.baseline = None
        # Writable in the guest as /output.
        self.output_folder = rig.folder / f"{self.name}-output"
        self.output_folder.mkdir()
        logs = ROOT / "target/guests/logs"
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / f"{self.name}.log"
        self.qmp = rig.folder / f"{self.name}.qmp"
        self.ramdisk = rig.folder / f"{self.name}.ramdisk"
        key = rig.folder / f"{self.name}-host-key"
        self.host_key = generate_key(key)
        add_settings(built, self.ramdisk, rig.key.with_suffix(".pub").read_bytes(), dropbear_key(key))

    def start(self):
        for bridge, tap in self.taps.items():
            network.add_tap(tap, bridge)
        self.launch()

    def launch(self):
        """Starts qemu."""
        self.log.unlink(missing_ok=True)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=open(self.log.with_suffix(".qemu"), "wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=network.die_with_parent,
        )

    def command(self):
        addresses = [",".join(network.addresses(bridge, self.number)) for bridge in self.taps]
        words = [
            f"guest={self.name}",
            f"repository={ROOT}",
            f"epoch={int(time.time())}",
            *(f"eth{place}={of_bridge}" for place, of_bridge in enumerate(addresses)),
            *([f"modules={','.join(self.spec.modules)}"] if self.spec.modules else []),
        ]
        command = qemu(self.image, self.accelerator, self.ramdisk, self.log, words)
        command += ["-m", str(self.spec.memory), "-qmp", f"unix:{self.qmp},server=on,wait=off"]
        for bridge, tap in self.taps.items():
            address = network.hardware_address(bridge, self.number)
            command += ["-netdev", f"tap,id={bridge},ifname={tap},script=no,downscript=no"]
            command += ["-device", f"virtio-net-pci,netdev={bridge},id=nic-{bridge},mac={address}"]
        share = "local,security_model=none,multidevs=remap"
        command += ["-virtfs", f"{share},path={ROOT},mount_tag=repository,readonly=on"]
        command += ["-virtfs", f"{share},path={self.output_folder},mount_tag=output"]
        command += [argument.format(folder=self.rig.folder) for argument in self.spec.arguments]
        return command + ([] if self.spec.reboots else ["-no-reboot"])

    def wait_until_ready(self, timeout=BOOT_TIMEOUT):
        """Waits until the guest's SSH server answers."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise GuestError(f"{self.name}: qemu ended with {self.process.returncode}{self.last_lines()}")
            try:
                with socket.create_connection((self.address, 22), timeout=1) as connection:
                    if connection.recv(4) == b"SSH-":
                        took = time.monotonic() - self.started
                        print(
                            f"guests: {self.name} ({self.image.name}, {self.accelerator}) booted in {took:.1f} s",
                            file=sys.stderr,
                            flush=True,
                        )
                        return
            except OSError:
                time.sleep(0.1)
        raise GuestError(f"{self.name} does not answer by SSH within {timeout} s{self.last_lines()}")

    def last_lines(self):
        logs = (self.log.with_suffix(".qemu"), self.log)
        texts = [path.read_text(errors="replace") for path in logs if path.exists()]
        return "".join(f"\n    {line}" for text in texts for line in text.splitlines()[-15:])

    def run(self, command, timeout=SSH_TIMEOUT, check=True, stdin=None, user="root"):
        """Runs a shell command in the guest; returns the finished process with text output."""
        arguments = ["ssh", "-F", str(self.rig.ssh_config), "-l", user, self.name, "--", command]
        try:
            done = subprocess.run(
                arguments,
                input=stdin or "",
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GuestError(f"{self.name}: no end within {timeout} s: {command}") from None
        if check and done.returncode:
            raise GuestError(f"{self.name}: exit code {done.returncode}: {command}\n{done.stdout}{done.stderr}")
        return done

    def output(self, command, **options):
        """Runs a shell command in the guest; returns its standard output without the last line break."""
        return self.run(command, **options).stdout.rstrip("\n")

    def start_command(self, command, **options):
        """Starts a shell command in the guest; returns the ssh process. It ends with this process."""
        arguments = ["ssh", "-F", str(self.rig.ssh_config), self.name, "--", command]
        return subprocess.Popen(arguments, preexec_fn=network.die_with_parent, **options)

    def write(self, path, text):
        self.run(f"cat >{shlex.quote(path)}", stdin=text)

    def set_link(self, bridge, up):
        """Plugs the cable of an interface in or out."""
        self.command_qemu("set_link", name=f"nic-{bridge}", up=up)

    def reset(self):
        """Restarts the machine as its reset button does."""
        self.command_qemu("system_reset")

    def command_qemu(self, command, /, **arguments):
        """Executes a command of qemu's machine protocol (QMP)."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.qmp))
            with connection.makefile("rwb") as stream:
                for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    stream.write(json.dumps(request).encode() + b"\n")
                    stream.flush()
                    answer = {}
                    while not {"return", "error"} & set(answer):
                        answer = json.loads(stream.readline())
                    if "error" in answer:
                        raise GuestError(f"{self.name}: qemu refuses {command}: {answer['error']['desc']}")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
        for tap in self.taps.values():
            network.remove_tap(tap)


def qemu(built, accelerated, ramdisk, log, words):
    """Returns the command that boots an image, without memory, network and folder."""
    machine, console = MACHINES[built.architecture]
    machine = [*machine[:-1], "host" if accelerated == "kvm" else machine[-1]]
    return [
        *machine,
        *("-accel", accelerated, "-smp", "1", "-nodefaults", "-display", "none", "-device", "virtio-rng-pci"),
        *("-serial", f"file:{log}", "-kernel", str(built.kernel), "-initrd", str(ramdisk)),
        *("-append", f"console={console} quiet panic=-1 {' '.join(words)}"),
    ]


def accelerator(built):
    """Returns `kvm` if a guest boots with it, else `tcg`. The answer holds until the host restarts."""
    if built.architecture != HOST or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    known = CACHE / f"accelerator-{started}"
    if not known.exists():
        # Renamed, so that another run reads no unfinished answer.
        unfinished = known.with_name(f"{known.name}.{os.getpid()}")
        unfinished.write_text("kvm" if boots_with_kvm(built) else "tcg")
        unfinished.rename(known)
    return known.read_text()


def boots_with_kvm(built):
    """Boots an image until its first process runs. Some hosts offer KVM, but virtual CPUs hang."""
    with tempfile.TemporaryDirectory(prefix=folder_prefix()) as folder:
        log = Path(folder) / "log"
        command = [*qemu(built, "kvm", built.ramdisk, log, ["probe"]), "-m", "512", "-no-reboot"]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=network.die_with_parent,
        )
        try:
            process.wait(PROBE_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()
            process.wait()
        works = log.exists() and b"guest: first process" in log.read_bytes()
    if not works:
        print("guests: no guest boots with KVM here; using TCG", file=sys.stderr, flush=True)
    return works


def generate_key(path):
    """Writes an Ed25519 key of OpenSSH; returns its public line."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "guests", "-f", str(path)], check=True)
    return path.with_suffix(path.suffix + ".pub").read_text().strip()


def dropbear_key(path):
    """Returns an unencrypted Ed25519 key of OpenSSH in the format of dropbear: type, then both halves of the key."""
    text = "".join(line for line in path.read_text().splitlines() if not line.startswith("-"))
    data = base64.b64decode(text).removeprefix(b"openssh-key-v1\0")

    def string():
        nonlocal data
        length = struct.unpack(">I", data[:4])[0]
        value, data = data[4 : 4 + length], data[4 + length :]
        return value

    # Cipher, derivation, its options, number of keys, public key, and the private part.
    string(), string(), string()
    data = data[4:]
    string()
    # Two check numbers, type, public half, private and public half.
    data = string()[8:]
    kind, _, key = string(), string(), string()
    return b"".join(struct.pack(">I", len(part)) + part for part in (kind, key))


def add_settings(built, ramdisk, public_key, host_key):
    """Writes an image's RAM disk with a second archive behind it, of the keys of one guest."""
    settings = image.Tree(is_complete=False)
    settings.add("etc/dropbear/host_key", stat.S_IFREG | 0o600, host_key)
    for home in ("root", "home/pi"):
        settings.add(f"{home}/.ssh/authorized_keys", stat.S_IFREG | 0o600, public_key)
    data = built.ramdisk.read_bytes()
    ramdisk.write_bytes(data + bytes(-len(data) % 4) + settings.archive())
