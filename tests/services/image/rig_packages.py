"""The Debian packages of the build rig, unpacked into a cache folder: nothing is installed system-wide."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

DOCKER = ("docker.io", "docker-cli", "docker-buildx", "containerd")
"""From Debian 13, whose buildx knows everything that is used here; they run on Debian 12 too."""
DOCKER_SUITE = "trixie"
OWN = ("runc", "docker-registry", "busybox-static")
"""From the machine's own Debian: Debian 13's runc wants a newer libc than 12 has."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class RigUnavailable(RuntimeError):
    """This machine cannot have the rig; its tests are skipped."""


def unpacked_packages(cache: Path) -> Path:
    """The packages' files; raises RigUnavailable with what is missing."""
    done = cache / "unpacked"
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        raise RigUnavailable("a Docker daemon of its own needs root and mount namespaces: run as root")
    if done.is_dir():
        return done
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing or not KEYRING.exists():
        raise RigUnavailable("the rig's parts are Debian packages: run on Debian 12 or 13")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        _fetch(Path(folder))
        unpacking = Path(folder, "unpacked")
        for package in sorted(Path(folder).glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, unpacking], check=True)
        # In one step: half of it would be taken for all.
        if not done.exists():
            unpacking.rename(done)
    return done


def _fetch(folder: Path) -> None:
    suite = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    if suite is None:
        raise RigUnavailable("the rig's parts are Debian packages: run on Debian 12 or 13")
    sources = folder / "sources.list"
    lines = [f"deb [signed-by={KEYRING}] {_mirror()} {name} main" for name in {suite.group(1), DOCKER_SUITE}]
    sources.write_text("\n".join(lines) + "\n")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::Lists": folder / "apt/lists",
        "Dir::Cache": folder / "apt/cache",
        "APT::Sandbox::User": "root",
    }
    for name in ("apt/lists/partial", "apt/cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    wanted = [f"{name}/{DOCKER_SUITE}" for name in DOCKER] + [f"{name}/{suite.group(1)}" for name in OWN]
    for argv in ([*apt, "update"], [*apt, "download", *wanted]):
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise RigUnavailable(f"apt-get does not bring {', '.join(wanted)} ({said}): run where it does")


def _mirror() -> str:
    """The machine's own Debian mirror."""
    for path in [*sorted(Path("/etc/apt/sources.list.d").glob("*.sources")), Path("/etc/apt/sources.list")]:
        text = path.read_text() if path.is_file() else ""
        found = re.search(r"^(?:URIs:|deb)\s+(?:\[[^]]*\]\s+)?(\S*/debian/?)(?:\s|$)", text, re.MULTILINE)
        if found:
            return found.group(1)
    raise RigUnavailable("apt has no source with Debian's packages: run on Debian 12 or 13")
