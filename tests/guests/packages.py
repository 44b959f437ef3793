"""Debian packages of the guests: packages.lock, downloads, and updates of the lock.

apt downloads with the mirror and proxies of this machine, but with lists, cache and status of its own below
the cache folder. Nothing is installed.
"""

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
LOCK = FOLDER / "packages.lock"
CACHE = Path(os.environ.get("DWELL_GUESTS_CACHE", ROOT / "target" / "guests"))
APT_HELPER = "/usr/lib/apt/apt-helper"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
DOWNLOAD_TIMEOUT = 600


class PackageError(Exception):
    """A package or index that cannot be obtained."""


@dataclass(frozen=True, order=True)
class Package:
    """A line of the lock. `path` is below the mirror's address."""

    architecture: str
    name: str
    version: str
    sha256: str
    path: str

    def file(self):
        return CACHE / "packages" / f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"

    def is_downloaded(self):
        return self.file().is_file() and sha256(self.file()) == self.sha256


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def definitions():
    return tomllib.loads((FOLDER / "images.toml").read_text())


def locked():
    lines = [line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    return [Package(*line) for line in lines]


def of_image(name):
    """Returns the kernel of an image and its other packages, as locked."""
    image = definitions()["images"][name]
    packages = [package for package in locked() if package.architecture == image["architecture"]]
    kernels = [package for package in packages if fnmatch.fnmatchcase(package.name, image["kernel"])]
    if len(kernels) != 1:
        raise PackageError(f"packages.lock has {len(kernels)} kernels for {name}; run tests/guests/run lock")
    return kernels[0], [package for package in packages if not package.name.startswith("linux-image-")]


def fetch(packages):
    """Downloads missing packages; returns them. A version that left the mirror is replaced by the newest of its series."""
    missing = [package for package in packages if not package.is_downloaded()]
    if missing:
        print(f"guests: downloading {len(missing)} packages", file=sys.stderr, flush=True)
        download(missing)
    if gone := [package for package in missing if not package.is_downloaded()]:
        index = Index()
        replaced = {package: index.newest(package) for package in gone}
        for package, newer in replaced.items():
            print(
                f"guests: WARNING: {package.name} {package.version} ({package.architecture}) is not on the mirror; using "
                f"{newer.name} {newer.version}. Update tests/guests/packages.lock: tests/guests/run lock",
                file=sys.stderr,
                flush=True,
            )
        download([package for package in replaced.values() if not package.is_downloaded()])
        packages = [replaced.get(package, package) for package in packages]
    if failed := [package for package in packages if not package.is_downloaded()]:
        names = ", ".join(f"{package.name} {package.version}" for package in failed)
        raise PackageError(f"cannot download {names}: see {CACHE / 'download.log'}")
    return packages


def download(packages):
    (CACHE / "packages").mkdir(parents=True, exist_ok=True)
    address = mirror()
    with open(CACHE / "download.log", "a") as log:
        # One call for all would stop at the first that is missing.
        for package in packages:
            partial = package.file().with_suffix(f".partial-{os.getpid()}")
            command = [APT_HELPER, "-o", "APT::Sandbox::User=root", "download-file", f"{address}/{package.path}", str(partial)]
            done = subprocess.run(
                [*command, f"SHA256:{package.sha256}"], stdout=log, stderr=log, timeout=DOWNLOAD_TIMEOUT, check=False
            )
            if done.returncode == 0:
                partial.rename(package.file())
            else:
                partial.unlink(missing_ok=True)


def mirror():
    """Returns the address of the Debian mirror that this machine's apt uses, or $DWELL_GUESTS_MIRROR."""
    if given := os.environ.get("DWELL_GUESTS_MIRROR"):
        return given.rstrip("/")
    if not shutil.which("apt-get") or not Path(APT_HELPER).exists():
        raise PackageError("apt is needed to download the packages of the guests")
    system = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(), re.MULTILINE))
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for line in listed.splitlines():
        release, component, address = line.split()
        if system.get("ID") == "debian" and release == system.get("VERSION_CODENAME") and component == "main":
            return address.rstrip("/")
    raise PackageError("apt knows no Debian mirror; set DWELL_GUESTS_MIRROR to the address of one")


class Index:
    """The packages that the mirror offers now, from signed lists."""

    def __init__(self):
        self.definitions = definitions()
        self.architectures = sorted(self.definitions["packages"])
        self.releases = [self.definitions["release"], self.definitions["backports"]]
        self.environment = self.prepare()
        # Stanzas by (release, architecture), then by name.
        self.stanzas = {}
        self.update()

    def prepare(self):
        """Writes an apt configuration with folders of its own; returns the environment that selects it."""
        folder = CACHE / "apt"
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        signed = f" signed-by={KEYRING}" if Path(KEYRING).exists() else ""
        (folder / "sources.list").write_text(
            "".join(
                f"deb [arch={','.join(self.architectures)}{signed}] {mirror()} {release} main\n" for release in self.releases
            )
        )
        (folder / "apt.conf").write_text(
            f"""
Dir::State "{folder}";
Dir::State::Lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Cache::archives "{folder}/archives";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
APT::Architectures {{ {' '.join(f'"{a}";' for a in self.architectures)} }};
Acquire::Languages "none";
"""
        )
        return dict(os.environ, APT_CONFIG=str(folder / "apt.conf"), LC_ALL="C")

    def update(self):
        with open(CACHE / "download.log", "a") as log:
            updated = subprocess.run(
                ["apt-get", "update"], env=self.environment, stdout=log, stderr=log, timeout=DOWNLOAD_TIMEOUT, check=False
            )
        if updated.returncode:
            raise PackageError(f"cannot update the lists of packages: see {CACHE / 'download.log'}")
        listed = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(RELEASE) $(ARCHITECTURE) $(FILENAME)", "Created-By: Packages"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for line in listed.splitlines():
            release, architecture, file = line.split()
            text = subprocess.run([APT_HELPER, "cat-file", file], capture_output=True, text=True, check=True).stdout
            found = self.stanzas.setdefault((release, architecture), {})
            for stanza in text.split("\n\n"):
                fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
                if "Package" in fields:
                    found[fields["Package"]] = fields

    def package(self, release, architecture, name):
        fields = self.stanzas[release, architecture][name]
        return Package(architecture, name, fields["Version"], fields["SHA256"], fields["Filename"])

    def newest(self, package):
        """Returns the newest package of the same name, or kernel of the same series."""
        for pattern in [package.name, *self.kernel_patterns(package)]:
            if found := self.find(package.architecture, pattern):
                return found
        raise PackageError(f"the mirror has no package {package.name} ({package.architecture})")

    def kernel_patterns(self, package):
        images = self.definitions["images"].values()
        kernels = [image["kernel"] for image in images if image["architecture"] == package.architecture]
        return [kernel for kernel in kernels if fnmatch.fnmatchcase(package.name, kernel)]

    def find(self, architecture, pattern):
        """Returns the newest package whose name matches, from the first release that has one."""
        for release in self.releases:
            offered = self.stanzas.get((release, architecture), {})
            matching = fnmatch.filter(offered, pattern)
            if names := [name for name in matching if not is_variant(name, pattern)]:
                return self.package(release, architecture, max(names, key=version_key))
        return None

    def closure(self, architecture):
        """Returns the packages of an architecture and those that they depend on."""
        offered = self.stanzas[self.definitions["release"], architecture]
        providers = {}
        for name, fields in offered.items():
            for provided in names_of(fields.get("Provides", "")):
                providers.setdefault(provided[0], name)
        chosen, waiting = set(), list(self.definitions["packages"][architecture])
        while waiting:
            name = waiting.pop()
            if name in chosen or name in self.definitions["without"]:
                continue
            if name not in offered:
                raise PackageError(f"the mirror has no package {name} ({architecture})")
            chosen.add(name)
            fields = offered[name]
            for alternatives in names_of(f"{fields.get('Depends', '')},{fields.get('Pre-Depends', '')}"):
                known = [providers.get(other, other) if other not in offered else other for other in alternatives]
                if not chosen.intersection(known):
                    waiting.append(next((other for other in known if other in offered), known[0]))
        return [self.package(self.definitions["release"], architecture, name) for name in chosen]


def is_variant(name, pattern):
    """Whether a kernel has a word beside its version, like linux-image-6.1.0-9-cloud-amd64."""
    start, _, end = pattern.partition("*")
    version = name[len(start) : len(name) - len(end)]
    return bool(re.search(r"[a-z]", re.sub(r"\+(deb|bpo)\d*", "", version)))


def version_key(name):
    return [int(number) for number in re.findall(r"\d+", name)]


def names_of(dependencies):
    """Returns the alternatives of each dependency, without versions."""
    parts = [part for part in dependencies.split(",") if part.strip()]
    return [[re.sub(r"[\s(:\[].*", "", name.strip()) for name in part.split("|")] for part in parts]


def update_lock():
    """Writes packages.lock with the newest versions of the mirror; returns what changed."""
    before = set(locked()) if LOCK.exists() else set()
    index = Index()
    packages = {package for architecture in index.architectures for package in index.closure(architecture)}
    for name, image in index.definitions["images"].items():
        kernel = index.find(image["architecture"], image["kernel"])
        if kernel is None:
            raise PackageError(f"the mirror has no kernel {image['kernel']} for {name}")
        packages.add(kernel)
    lines = [" ".join((p.architecture, p.name, p.version, p.sha256, p.path)) for p in sorted(packages)]
    LOCK.write_text(
        "# Written by `tests/guests/run lock`: architecture, package, version, SHA-256, path on the mirror.\n"
        + "".join(f"{line}\n" for line in lines)
    )
    return sorted(packages - before), sorted(before - packages)
