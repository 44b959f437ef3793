"""Images of the guests: a kernel, and an initial RAM disk that is the whole system.

An image is built from .deb files, which are unpacked and never installed, from files/ and from clock.c. It is
kept under a hash of everything that it is made of.
"""

import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import packages
from packages import CACHE, FOLDER, PackageError

FILES = FOLDER / "files"
CLOCK = FOLDER / "clock.c"
# Images that no guest used for this time are removed from the cache.
MAX_UNUSED_SECONDS = 14 * 86_400
# Parts of packages that a guest does not use.
UNUSED = re.compile(
    r"usr/share/(doc|man|locale|info|lintian|bash-completion|zsh|fish|bug|doc-base|pixmaps|applications|menu)/|"
    r"usr/lib/systemd/|etc/(init\.d|default|cron\.[a-z]+|apparmor\.d|network)/|usr/lib/[^/]+/(gconv|perl5?)/|"
    r"usr/(games|include)/"
)
# Debian's packages of this release still have both places; the guest's /bin is a link to /usr/bin.
MERGED = ("bin", "lib", "lib64", "sbin")


class Image:
    """A built image: paths of kernel and RAM disk, architecture and kernel release."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = folder
        self.kernel = folder / "kernel"
        self.ramdisk = folder / "ramdisk"
        described = json.loads((folder / "image.json").read_text())
        self.architecture = described["architecture"]
        self.release = described["release"]


def build(name):
    """Returns the image of a name, built if no image of its hash is in the cache."""
    known = packages.definitions()["images"]
    if name not in known:
        raise PackageError(f"no image {name}; images.toml has {', '.join(known)}")
    kernel, others = packages.of_image(name)
    folder = CACHE / "images" / f"{name}-{digest(name, [kernel, *others])}"
    if not (folder / "image.json").exists():
        kernel, *others = packages.fetch([kernel, *others])
        # A replaced package has another hash.
        folder = CACHE / "images" / f"{name}-{digest(name, [kernel, *others])}"
    if not (folder / "image.json").exists():
        started = time.monotonic()
        make(name, kernel, others, folder)
        size = (folder / "ramdisk").stat().st_size / 1e6
        print(
            f"guests: built {name} (kernel {kernel.version}, {len(others)} packages, RAM disk {size:.0f} MB) "
            f"in {time.monotonic() - started:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    os.utime(folder)
    remove_unused_images()
    return Image(name, folder)


def remove_unused_images():
    for folder in (CACHE / "images").iterdir():
        if time.time() - folder.stat().st_mtime > MAX_UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def digest(name, parts):
    """Returns a hash of everything that an image is made of."""
    definitions = packages.definitions()
    hashed = hashlib.sha256()
    hashed.update(json.dumps([definitions["images"][name], definitions["modules"]]).encode())
    for package in sorted(parts):
        hashed.update(f"{package.name} {package.sha256}\n".encode())
    for path in sorted([Path(__file__), CLOCK, *(path for path in FILES.rglob("*") if path.is_file())]):
        hashed.update(f"{path.relative_to(FOLDER)} {path.stat().st_mode & 0o777:o}\n".encode())
        hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def make(name, kernel, others, folder):
    image = packages.definitions()["images"][name]
    tree = Tree()
    for package in others:
        with unpacked(package) as members:
            tree.add_archive(members)
    with tempfile.TemporaryDirectory(dir=made(CACHE / "tmp")) as scratch:
        scratch = Path(scratch)
        release = unpack_kernel(kernel, scratch)
        select_modules(scratch, release, wanted_modules(image))
        tree.add_folder(scratch / "lib", "lib")
        tree.add_folder(FILES, "")
        tree.add_applets("usr/bin/busybox")
        if image["architecture"] == "amd64":
            subprocess.run(["gcc", "-O2", "-static", "-Wall", "-o", scratch / "clock", CLOCK], check=True)
            tree.add("usr/bin/clock", 0o755 | stat.S_IFREG, (scratch / "clock").read_bytes())
        partial = scratch / "image"
        partial.mkdir()
        shutil.copyfile(scratch / "kernel", partial / "kernel")
        with gzip.GzipFile(partial / "ramdisk", "wb", compresslevel=6, mtime=0) as file:
            file.write(tree.archive())
        described = {"architecture": image["architecture"], "release": release, "kernel": kernel.version}
        (partial / "image.json").write_text(json.dumps(described))
        made(folder.parent)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)


def made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class unpacked:
    """The members of a .deb file, as a stream of tarfile."""

    def __init__(self, package):
        self.command = ["dpkg-deb", "--fsys-tarfile", str(package.file())]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE)
        return tarfile.open(fileobj=self.process.stdout, mode="r|")

    def __exit__(self, error, *_):
        # Behind the last member is padding. dpkg-deb fails if it cannot write that.
        while error is None and self.process.stdout.read(1 << 20):
            pass
        self.process.stdout.close()
        status = self.process.wait()
        if error is None and status != 0:
            raise PackageError(f"{' '.join(self.command)} ended with {status}")


def unpack_kernel(kernel, scratch):
    """Unpacks a kernel and its modules into `scratch`; returns the kernel's release."""
    release = kernel.name.removeprefix("linux-image-")
    with unpacked(kernel) as members:
        for member in members:
            path = member.name.removeprefix("./")
            if path == f"boot/vmlinuz-{release}":
                (scratch / "kernel").write_bytes(members.extractfile(member).read())
            elif re.fullmatch(rf"lib/modules/{re.escape(release)}/(kernel/.*\.ko(\.xz)?|modules\..*)", path):
                made((scratch / "all" / path).parent)
                (scratch / "all" / path).write_bytes(members.extractfile(member).read())
    if not (scratch / "kernel").exists():
        raise PackageError(f"{kernel.file()} has no boot/vmlinuz-{release}")
    return release


def wanted_modules(image):
    groups = packages.definitions()["modules"]
    return [module for group in image["modules"] for module in groups[group]]


def select_modules(scratch, release, wanted):
    """Moves the wanted modules and those that they need from `all` into `lib`, uncompressed, with depmod's index."""
    every = scratch / "all" / "lib" / "modules" / release
    files = {module_name(path): path for path in every.rglob("*.ko*")}
    builtin = {module_name(Path(line)) for line in (every / "modules.builtin").read_text().splitlines()}
    target = scratch / "lib" / "modules" / release
    chosen, waiting = set(), list(wanted)
    while waiting:
        name = waiting.pop().replace("-", "_")
        if name in chosen or name in builtin:
            continue
        if name not in files:
            raise PackageError(f"kernel {release} has no module {name}")
        chosen.add(name)
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            data = lzma.decompress(data)
        needed = re.search(rb"\0depends=([^\0]*)\0", data)
        waiting += [other for other in needed[1].decode().split(",") if other] if needed else []
        place = target / files[name].relative_to(every).with_name(files[name].name.removesuffix(".xz"))
        made(place.parent).joinpath(place.name).write_bytes(data)
    for path in every.glob("modules.*"):
        shutil.copyfile(path, target / path.name)
    subprocess.run(["depmod", "-b", str(scratch), release], check=True)


def module_name(path):
    return re.sub(r"\.ko(\.\w+)?$", "", path.name).replace("-", "_")


class Tree:
    """Files of the RAM disk by path, with mode and content; all belong to root, none has a time."""

    def __init__(self, is_complete=True):
        self.entries = {}
        if not is_complete:
            return
        for name in MERGED:
            self.add(name, 0o777 | stat.S_IFLNK, f"usr/{name}".encode())
        for folder in ("dev", "proc", "sys", "run", "tmp", "root", "mnt", "var/tmp"):
            self.add(folder, stat.S_IFDIR | (0o1777 if folder.endswith("tmp") else 0o755), b"")
        # The kernel opens it before devtmpfs is mounted.
        self.add("dev/console", 0o600 | stat.S_IFCHR, b"", (5, 1))

    def add(self, path, mode, content, device=(0, 0)):
        first, _, rest = path.partition("/")
        if first in MERGED and rest:
            path = f"usr/{path}"
        parent = path.rpartition("/")[0]
        if parent and parent not in self.entries:
            self.add(parent, 0o755 | stat.S_IFDIR, b"")
        self.entries[path] = (mode, content, device)

    def add_archive(self, members):
        hard_linked = {}
        for member in members:
            path = member.name.removeprefix("./").rstrip("/")
            if not path or UNUSED.match(path + "/") or path in MERGED:
                continue
            if member.isdir():
                if path not in self.entries:
                    self.add(path, member.mode | stat.S_IFDIR, b"")
            elif member.issym():
                self.add(path, 0o777 | stat.S_IFLNK, member.linkname.encode())
            elif member.isfile():
                hard_linked[path] = (member.mode | stat.S_IFREG, members.extractfile(member).read())
                self.add(path, *hard_linked[path])
            elif member.islnk():
                self.add(path, *hard_linked[member.linkname.removeprefix("./")])

    def add_folder(self, folder, name):
        for path in sorted(folder.rglob("*")):
            place = str(Path(name) / path.relative_to(folder))
            if path.is_symlink():
                self.add(place, 0o777 | stat.S_IFLNK, str(path.readlink()).encode())
            elif path.is_file():
                executable = path.stat().st_mode & 0o100
                self.add(place, stat.S_IFREG | (0o755 if executable else 0o644), path.read_bytes())

    def add_applets(self, busybox):
        """Adds a link for each command of a busybox that no package provides."""
        # Its names are a list of strings that ends with an empty one; `[` and `[[` are the first.
        names = re.search(rb"\0(\[\0\[\[\0(?:[^\0]+\0)+)", self.entries[busybox][1])
        if names is None:
            raise PackageError(f"no list of commands in {busybox}")
        for name in names[1].decode().rstrip("\0").split("\0"):
            folders = ("usr/bin", "usr/sbin")
            if not any(f"{folder}/{name}" in self.entries for folder in folders):
                self.add(f"{folders[name == 'init']}/{name}", 0o777 | stat.S_IFLNK, f"/{busybox}".encode())

    def archive(self):
        """Returns the files as a cpio archive, in the format `newc` of the kernel's initramfs."""
        archive = io.BytesIO()
        end = ("TRAILER!!!", (0, b"", (0, 0)))
        for number, (path, (mode, content, device)) in enumerate([*sorted(self.entries.items()), end]):
            name = path.encode() + b"\0"
            # Magic, inode, mode, uid, gid, links, mtime, size, device, device of the file, length of the name, check.
            fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name), 0]
            archive.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
            archive.write(bytes(-archive.tell() % 4))
            archive.write(content)
            archive.write(bytes(-archive.tell() % 4))
        return archive.getvalue()
