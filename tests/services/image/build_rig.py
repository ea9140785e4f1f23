"""A Docker Engine with BuildKit, and registries, from unpacked Debian packages.

The daemon's mounts are its own (a private mount namespace); it and the registries are stopped by pid. Needs root.
"""

from __future__ import annotations

import crypt
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.local.process import answers
from tests.services.image.rig_packages import unpacked_packages

PASSWORD = "s3cret-password"
APPLETS = ("sh", "cat", "chmod", "echo", "env", "find", "ls", "mkdir", "sleep", "test", "touch", "true")


class RigFailed(RuntimeError):
    """The rig's parts are there and do not run."""


@dataclass(frozen=True)
class Rig:
    """What tests need to know of it."""

    env: dict[str, str]
    """Environment that leads docker to the daemon."""
    registry: str
    """Address of a registry that takes everybody."""
    locked_registry: str
    """Address of one that wants user AWS with PASSWORD."""
    base: str
    """busybox in the first registry, pinned by digest."""

    def docker(self, *argv: str, stdin: bytes = b"") -> str:
        done = subprocess.run(["docker", *argv], env=self.env, input=stdin, capture_output=True)
        if done.returncode != 0:
            raise RigFailed(f"docker {' '.join(argv)}: {done.stderr.decode()[-2000:]}")
        return done.stdout.decode()


@contextmanager
def build_rig(cache: Path, state: Path) -> Iterator[Rig]:
    """The rig, running; ``cache`` keeps the packages, ``state`` all that this run makes."""
    unpacked = unpacked_packages(cache.resolve())
    path = f"{unpacked}/usr/sbin:{unpacked}/usr/bin:{os.environ['PATH']}"
    config = state / "docker-config"
    (config / "cli-plugins").mkdir(parents=True)
    shutil.copy(unpacked / "usr/libexec/docker/cli-plugins/docker-buildx", config / "cli-plugins")
    sock = f"unix://{state}/docker.sock"
    env = {**os.environ, "PATH": path, "DOCKER_HOST": sock, "DOCKER_CONFIG": str(config), "HOME": str(state)}
    with ExitStack() as stack:
        open_url = stack.enter_context(_registry(state / "open", env, locked=False))
        locked_url = stack.enter_context(_registry(state / "locked", env, locked=True))
        stack.enter_context(_daemon(state, env))
        rig = Rig(env, open_url, locked_url, base="")
        yield Rig(env, open_url, locked_url, base=_push_busybox(rig, unpacked / "bin/busybox"))


@contextmanager
def _daemon(state: Path, env: dict[str, str]) -> Iterator[None]:
    config = {"insecure-registries": ["127.0.0.0/8"], "features": {"containerd-snapshotter": True}}
    (state / "daemon.json").write_text(json.dumps(config))
    argv = ["unshare", "-m", "--propagation", "private", "dockerd", "--config-file", f"{state}/daemon.json"]
    argv += ["--data-root", f"{state}/data", "--exec-root", f"{state}/exec", "--pidfile", f"{state}/docker.pid"]
    # Without a bridge there is nothing to set up and to tear down; RUN steps take the host's network.
    argv += ["-H", env["DOCKER_HOST"], "--bridge=none", "--iptables=false", "--ip-masq=false", "--group", "root"]

    def pings() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{state}/docker.sock")
                probe.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b"200 OK" in probe.recv(100)
            except OSError:
                return False

    with _running("dockerd", argv, env, state / "dockerd.log", pings):
        yield


@contextmanager
def _registry(folder: Path, env: dict[str, str], locked: bool) -> Iterator[str]:
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = ["version: 0.1", "log: {level: warn}", f"http: {{addr: '127.0.0.1:{port}'}}"]
    lines.append(f"storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}")
    if locked:
        hashed = crypt.crypt(PASSWORD, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))
        (folder / "htpasswd").write_text(f"AWS:{hashed}\n")
        lines.append(f"auth: {{htpasswd: {{realm: maze, path: {folder}/htpasswd}}}}")
    (folder / "registry.yml").write_text("\n".join(lines) + "\n")
    url = f"http://127.0.0.1:{port}"
    argv = ["docker-registry", "serve", str(folder / "registry.yml")]
    with _running("docker-registry", argv, env, folder / "registry.log", lambda: answers(f"{url}/v2/")):
        yield url


@contextmanager
def _running(
    name: str, argv: Sequence[str], env: dict[str, str], log: Path, ready: Callable[[], bool]
) -> Iterator[None]:
    with log.open("ab") as output:
        process = subprocess.Popen(argv, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RigFailed(f"{name} does not answer; the end of {log}:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _push_busybox(rig: Rig, busybox: Path) -> str:
    rootfs, context = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=rootfs, mode="w") as archive:
        for name in ("bin", "etc", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        archive.add(busybox, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, data in {"Dockerfile": b"FROM scratch\nADD rootfs.tar /\n", "rootfs.tar": rootfs.getvalue()}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    name = f"{rig.registry.removeprefix('http://')}/busybox"
    with tempfile.NamedTemporaryFile("r") as metadata:
        argv = ["buildx", "build", "--provenance=false", "--push", "--tag", f"{name}:1"]
        rig.docker(*argv, "--metadata-file", metadata.name, "-", stdin=context.getvalue())
        return f"{name}@{json.loads(Path(metadata.name).read_text())['containerimage.digest']}"
