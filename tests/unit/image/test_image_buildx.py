"""The stage with docker: a program of that name which records what it is given, and a registry on loopback."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.errors import BuilderNotReady, ImageBuildFailed, RegistryRefused, RegistryUnreachable
from tasks.image.build import Yard, environments, order_of
from tasks.image.buildx import BuildxBuilder, hidden_texts, without
from tasks.image.registry import Credentials, ImageRegistry
from tasks.image.settings import BuildxImages, ImageSpec, InstalledEnvironments
from tasks.local.session import is_over, wait_until_over
from tests.unit.image.registry_api import FakeRegistry, registry_api

DIGEST = "sha256:" + "9" * 64
DOCKER = f"""#!{sys.executable}
import json, os, stat, subprocess, sys, time, urllib.request
from pathlib import Path

folder, config = Path(os.environ["FAKE_DOCKER"]), Path(os.environ.get("DOCKER_CONFIG", "/none"))
if sys.argv[1:] == ["buildx", "version"]:
    sys.exit(0 if os.environ["DOES"] != "no-buildx" else "docker: 'buildx' is not a docker command.")
(folder / "seen.json").write_text(json.dumps({{
    "argv": sys.argv[1:],
    "config": json.loads((config / "config.json").read_text()),
    "mode": oct(stat.S_IMODE(config.stat().st_mode)),
    "folder": str(config),
    "linked": sorted(path.name for path in config.iterdir() if path.is_symlink()),
    "buildx": os.environ["BUILDX_CONFIG"],
    "num_context_bytes": len(sys.stdin.buffer.read()),
}}))
print("#1 token is", os.environ.get("TOKEN", "unset"), "and", config_password := "s3cret-password", flush=True)
if os.environ["DOES"] == "fail":
    sys.exit("ERROR: no space left, " + os.environ["TOKEN"])
if os.environ["DOES"] == "hang":
    child = subprocess.Popen(["sleep", "600"])
    (folder / "pids").write_text(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(600)
reference = sys.argv[sys.argv.index("--tag") + 1]
host, _, name = reference.partition("/")
repository, _, tag = name.partition(":")
request = urllib.request.Request(f"http://{{host}}/v2/{{repository}}/manifests/{{tag}}", method="PUT")
request.add_header("Docker-Content-Digest", os.environ.get("PUSHED", "{DIGEST}"))
urllib.request.urlopen(request)
Path(sys.argv[sys.argv.index("--metadata-file") + 1]).write_text(json.dumps({{"containerimage.digest": "{DIGEST}"}}))
"""


class Desk:
    """Fake docker, registry, settings, and all that was said."""

    def __init__(self, folder: Path, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.registry, self.monkeypatch = folder, registry, monkeypatch
        self.said: list[str] = []
        (folder / "context/docker").mkdir(parents=True)
        (folder / "context/docker/Dockerfile").write_text("FROM scratch")
        (folder / "bin").mkdir()
        (folder / "bin/docker").write_text(DOCKER)
        (folder / "bin/docker").chmod(0o755)
        (folder / "own/cli-plugins").mkdir(parents=True)
        (folder / "own/config.json").write_text(json.dumps({"credsStore": "desktop", "auths": {"other": {}}}))
        for name, value in {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "DOCKER_CONFIG": str(folder / "own"),
            "FAKE_DOCKER": str(folder),
            "DOES": "build",
            "TOKEN": "a-token-of-the-index",
        }.items():
            monkeypatch.setenv(name, value)

    def settings(self, **changes: Any) -> BuildxImages:
        spec = ImageSpec(repository="maze-train", target="train", files=("docker/Dockerfile",))
        made = BuildxImages(
            images={"train": spec},
            context=str(self.folder / "context"),
            registry=self.registry.url,
            login="none",
            secrets={"token": "TOKEN"},
            timeout_s=30,
            grace_s=2,
        )
        return made.model_copy(update=changes)

    def build(self, password: str = "", **changes: Any) -> Any:
        """The stage with a login that needs no AWS."""
        settings = self.settings(**changes)

        def login() -> Credentials | None:
            return Credentials("AWS", password) if password else None

        builder = BuildxBuilder(login, settings.builder, settings.network, settings.timeout_s, settings.grace_s)
        yard = Yard(builder, ImageRegistry(settings.registry, login), lambda name: False)
        return yard.image(settings, settings.images["train"], self.said.append)

    def seen(self) -> dict[str, Any]:
        return json.loads((self.folder / "seen.json").read_text())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with registry_api() as registry:
        yield Desk(tmp_path, registry, monkeypatch)


def test_an_image_is_built_pushed_and_known_by_its_digest(desk: Desk) -> None:
    made = environments(desk.settings(network="host", builder="mine"), desk.said.append)["train"]
    host = desk.registry.url.removeprefix("http://")
    assert made.uri == f"{host}/maze-train@{DIGEST}"
    assert (made.sha256, made.built) == ("9" * 64, True)
    argv = desk.seen()["argv"]
    assert argv[:7] == ["buildx", "build", "--builder", "mine", "--network", "host", "--progress=plain"]
    assert argv[-4:-2] == ["--push", "--metadata-file"]
    assert argv[-1] == "-"
    assert desk.seen()["num_context_bytes"] > 0
    assert all(kind in desk.registry.accepted for kind in ("oci.image.index", "oci.image.manifest", "list.v2+json"))


def test_what_the_registry_has_is_not_built(desk: Desk) -> None:
    first, second = desk.build(), desk.build()
    assert (first.built, second.built) == (True, False)
    assert first.uri == second.uri
    (desk.folder / "seen.json").unlink()
    desk.build()
    assert not (desk.folder / "seen.json").exists()
    assert desk.said[-1].endswith(f"is there: {DIGEST}")


def test_the_login_lies_in_a_folder_of_its_own_that_is_gone_afterwards(desk: Desk) -> None:
    desk.registry.password = "s3cret-password"
    desk.build(password="s3cret-password")
    seen, host = desk.seen(), desk.registry.url.removeprefix("http://")
    # The user's credential store would be asked before the file.
    assert seen["config"]["credHelpers"] == {host: ""}
    assert set(seen["config"]["auths"]) == {host, "other"}
    assert seen["mode"] == "0o700"
    assert seen["linked"] == ["cli-plugins"]
    assert seen["buildx"] == str(desk.folder / "own/buildx")
    assert not Path(seen["folder"]).exists()


def test_secrets_are_in_no_argument_no_line_and_no_error(desk: Desk) -> None:
    desk.registry.password = "s3cret-password"
    desk.monkeypatch.setenv("DOES", "fail")
    with pytest.raises(ImageBuildFailed, match=r"exit code 1; .*(?s:.*)ERROR: no space left, \*\*\*") as failure:
        desk.build(password="s3cret-password")
    assert "#1 token is *** and ***" in desk.said
    everything = "\n".join([*desk.said, str(failure.value), *desk.seen()["argv"]])
    assert not [secret for secret in ("a-token-of-the-index", "s3cret-password") if secret in everything]
    assert "id=token,env=TOKEN" in desk.seen()["argv"]


def test_each_line_of_a_secret_is_hidden() -> None:
    hidden = hidden_texts(["[global]\nproxy = https://me:pw@host\n\nx\n", ""])
    assert without(hidden, "+ cat: proxy = https://me:pw@host x") == "+ cat: *** x"


def test_what_is_missing_is_said_before_anything_starts(desk: Desk) -> None:
    with pytest.raises(BuilderNotReady, match=r"PIP_CONF is not set in this environment.*\(image\.secrets: pip_conf"):
        desk.build(secrets={"pip_conf": "PIP_CONF"})
    desk.monkeypatch.setenv("DOES", "no-buildx")
    with pytest.raises(BuilderNotReady, match=r"no buildx \(docker: 'buildx' is not a docker command"):
        desk.build()
    desk.monkeypatch.setenv("PATH", str(desk.folder))
    with pytest.raises(BuilderNotReady, match="no docker on the PATH"):
        desk.build()
    assert not (desk.folder / "seen.json").exists()


def test_a_base_that_nobody_looked_up_is_not_built_on(desk: Desk) -> None:
    spec = ImageSpec(
        repository="maze-train",
        target="train",
        files=("docker/Dockerfile",),
        build_args={"TRAIN_BASE_IMAGE": "nvidia/cuda@sha256:" + "0" * 64},
    )
    with pytest.raises(ImageBuildFailed, match="TRAIN_BASE_IMAGE of maze-train has a digest of zeros"):
        environments(desk.settings(images={"train": spec}), desk.said.append)


def test_a_build_that_takes_too_long_is_stopped_with_all_its_processes(desk: Desk) -> None:
    desk.monkeypatch.setenv("DOES", "hang")
    with pytest.raises(ImageBuildFailed, match=r"stopped after 2 s; .*(?s:.*)#1 token is"):
        desk.build(timeout_s=2)
    assert_gone(desk)


def test_whoever_ends_the_call_ends_the_build(desk: Desk) -> None:
    class Cancelled(BaseException):
        pass

    def say(line: str) -> None:
        desk.said.append(line)
        if line.startswith("#1"):
            while not (desk.folder / "pids").exists():
                time.sleep(0.01)
            raise Cancelled

    desk.monkeypatch.setenv("DOES", "hang")
    settings = desk.settings()
    order = order_of(settings, settings.images["train"], "127.0.0.1:1")
    with pytest.raises(Cancelled):
        BuildxBuilder(lambda: None, grace_s=2).build(order, say)
    assert_gone(desk)


def assert_gone(desk: Desk) -> None:
    """A process that was told to die runs on until the kernel next comes to it."""
    pids = [int(pid) for pid in (desk.folder / "pids").read_text().split()]
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    wait_until_over(processes, timeout_s=10)
    assert len(pids) == 2
    assert all(map(is_over, processes))


def test_lines_are_heard_while_the_build_runs(desk: Desk) -> None:
    class Enough(Exception):
        """Raised by the first line: a build that hangs after it would never have been heard at its end."""

    def say(line: str) -> None:
        raise Enough

    desk.monkeypatch.setenv("DOES", "hang")
    settings = desk.settings(timeout_s=120)
    order = order_of(settings, settings.images["train"], "127.0.0.1:1")
    with pytest.raises(Enough):
        BuildxBuilder(lambda: None, timeout_s=120).build(order, say)


def test_the_registry_has_the_last_word_on_the_digest(desk: Desk) -> None:
    desk.monkeypatch.setenv("PUSHED", "sha256:" + "1" * 64)
    with pytest.raises(ImageBuildFailed, match=f"the builder pushed {DIGEST} and the registry has sha256:1111"):
        desk.build()


def test_a_tag_that_another_build_pushed_meanwhile_is_taken(desk: Desk) -> None:
    settings = desk.settings()
    tag = order_of(settings, settings.images["train"], "h").tag

    class Loser:
        def build(self, order: Any, say: Any) -> str:
            desk.registry.digests[f"maze-train:{tag}"] = DIGEST
            raise ImageBuildFailed("the tag is immutable")

    yard = Yard(Loser(), ImageRegistry(settings.registry, lambda: None), lambda name: False)
    made = yard.image(settings, settings.images["train"], desk.said.append)
    assert (made.sha256, made.built) == ("9" * 64, False)


def test_a_registry_that_refuses_or_is_none_is_told_apart(desk: Desk) -> None:
    desk.registry.password = "right"
    with pytest.raises(RegistryRefused, match=r"answered 401 when asked for maze-train:ctx-.*check image\.login"):
        desk.build(password="wrong")
    desk.registry.password, desk.registry.status = "", 500
    with pytest.raises(RegistryUnreachable, match="answered 500"):
        desk.build()
    with socket.socket() as taken:
        # Bound and not listening: nobody answers there.
        taken.bind(("127.0.0.1", 0))
        nobody = "http://{}:{}".format(*taken.getsockname())
        with pytest.raises(RegistryUnreachable, match=rf"{nobody} does not answer \(ConnectionError\)"):
            desk.build(registry=nobody)


def test_installed_environments_are_known_by_their_locks(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("torch==2\n")
    made = environments(InstalledEnvironments(locks={"train": str(tmp_path / "train.txt")}), print)
    assert list(made) == ["train-lock"]
    assert made["train-lock"].sha256.startswith("c49345c9")
    assert made["train-lock"].uri == str(tmp_path / "train.txt")
