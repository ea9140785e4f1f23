"""The image stage on a real Docker Engine with BuildKit and real registries, all on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import requests
import yaml

from tasks.errors import ImageBuildFailed, RegistryRefused
from tasks.image.build import Yard, environments, order_of
from tasks.image.buildx import BuildxBuilder
from tasks.image.registry import MANIFESTS, Credentials, ImageRegistry
from tasks.image.settings import BuildxImages, CodeBuildImages, ImageSpec
from tasks.records import ImageRef
from tests.moto_server import moto_server
from tests.services.image.build_rig import PASSWORD, Rig, build_rig
from tests.services.image.rig_packages import RigUnavailable
from tests.unit.image.codebuild_api import Build, codebuild_api

pytestmark = pytest.mark.slow_s(20)

ROOT = Path(__file__).resolve().parents[3]
SECRET = "token-of-a-private-index"


@pytest.fixture(scope="module")
def started_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    try:
        with build_rig(ROOT / ".local/build-rig", tmp_path_factory.mktemp("rig")) as rig:
            yield rig
    except RigUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def rig(started_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """The rig, and an environment of this process that leads to it."""
    for name in ("PATH", "DOCKER_HOST", "DOCKER_CONFIG", "HOME"):
        monkeypatch.setenv(name, started_rig.env[name])
    monkeypatch.setenv("INDEX_TOKEN", SECRET)
    return started_rig


def settings_for(rig: Rig, folder: Path, dockerfile: str, repository: str, **changes: Any) -> BuildxImages:
    """One image, ``it``, from a Dockerfile of the test's own."""
    (folder / "docker").mkdir(exist_ok=True)
    (folder / "docker/Dockerfile").write_text(f"ARG TEST_BASE_IMAGE\nFROM ${{TEST_BASE_IMAGE}} AS it\n{dockerfile}")
    spec = ImageSpec(
        repository=repository,
        target="it",
        files=("docker/Dockerfile",),
        build_args={"TEST_BASE_IMAGE": rig.base, **changes.pop("build_args", {})},
    )
    made = BuildxImages(
        images={"it": spec},
        context=str(folder),
        registry=rig.registry,
        login="none",
        network="host",
        registry_cache=False,
        timeout_s=120,
    )
    return made.model_copy(update=changes)


def get(rig: Rig, path: str) -> requests.Response:
    answer = requests.get(f"{rig.registry}/v2/{path}", headers={"Accept": MANIFESTS}, timeout=10)
    answer.raise_for_status()
    return answer


def pulled(rig: Rig, made: ImageRef) -> tuple[list[bytes], list[tarfile.TarFile]]:
    """An image's manifest and configuration, and its layers, from the registry."""
    repository, _, digest = made.uri.partition("/")[2].partition("@")
    manifest = get(rig, f"{repository}/manifests/{digest}").content
    assert f"sha256:{hashlib.sha256(manifest).hexdigest()}" == digest == f"sha256:{made.sha256}"
    document = json.loads(manifest)
    blobs = [get(rig, f"{repository}/blobs/{layer['digest']}").content for layer in document["layers"]]
    config = get(rig, f"{repository}/blobs/{document['config']['digest']}").content
    return [manifest, config], [tarfile.open(fileobj=io.BytesIO(blob)) for blob in blobs]


def test_the_projects_own_files_become_an_image_under_the_registrys_digest(rig: Rig) -> None:
    spec = ImageSpec(
        repository="maze-files",
        target="files",
        files=("docker/Dockerfile", "rl/**/*.py", "rl/eval_sets/*.json", "serving/**/*.py"),
        build_args={"TRAIN_BASE_IMAGE": rig.base},
    )
    settings = BuildxImages(
        images={"train": spec},
        context=str(ROOT),
        registry=rig.registry,
        login="none",
        network="host",
        timeout_s=120,
    )
    said: list[str] = []
    first = environments(settings, said.append)["train"]
    assert first.built
    _, layers = pulled(rig, first)
    names = {name for layer in layers for name in layer.getnames()}
    assert {"opt/maze/rl/grpo/job.py", "opt/maze/serving/ingress.py", "opt/maze/rl/eval_sets/maze_2d_9x9.json"} <= names
    assert not [name for name in names if "__pycache__" in name or "models" in name]
    before = time.monotonic()
    again = environments(settings, said.append)["train"]
    assert (again.uri, again.built) == (first.uri, False)
    assert time.monotonic() - before < 2.0


def test_lines_arrive_while_the_build_runs(rig: Rig, tmp_path: Path) -> None:
    settings = settings_for(rig, tmp_path, "RUN for i in 1 2 3; do echo tick $i; sleep 1; done\n", "ticks")
    heard: dict[str, float] = {}
    environments(settings, lambda line: heard.setdefault(line.rpartition(" tick ")[2], time.monotonic()))
    assert heard["3"] - heard["1"] > 1.5
    assert time.monotonic() - heard["1"] > 2.5


def test_a_secret_can_be_used_and_is_in_no_layer_and_no_line(rig: Rig, tmp_path: Path) -> None:
    dockerfile = (
        "RUN --mount=type=secret,id=token test -s /run/secrets/token && cat /run/secrets/token && touch /was-there\n"
    )
    settings = settings_for(rig, tmp_path, dockerfile, "secrets", secrets={"token": "INDEX_TOKEN"})
    said: list[str] = []
    documents, layers = pulled(rig, environments(settings, said.append)["it"])
    assert any("was-there" in layer.getnames() for layer in layers)
    contents = [layer.extractfile(entry) for layer in layers for entry in layer if entry.isfile()]
    assert not [data for data in [*documents, *(file.read() for file in contents if file)] if SECRET.encode() in data]
    assert [line for line in said if line.endswith("***")]
    assert not [line for line in said if SECRET in line]


def test_a_failing_step_gives_its_last_words(rig: Rig, tmp_path: Path) -> None:
    settings = settings_for(rig, tmp_path, "RUN echo the disk is full && ls /nowhere\n", "fails")
    with pytest.raises(ImageBuildFailed, match=r"exit code 1; (?s:.*)the disk is full(?s:.*)/nowhere: No such file"):
        environments(settings, print)


def sleepers() -> list[int]:
    """Processes of the machine that sleep as long as no other."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error):
            if "421.7" in psutil.Process(pid).cmdline():
                found.append(pid)
    return found


def test_whoever_ends_the_stage_ends_the_step_that_runs(rig: Rig, tmp_path: Path) -> None:
    class Cancelled(BaseException):
        pass

    def cancel(line: str) -> None:
        if line.endswith(" it runs"):
            assert sleepers()
            raise Cancelled

    settings = settings_for(rig, tmp_path, "RUN echo it runs; sleep 421.7\n", "endless")
    with pytest.raises(Cancelled):
        environments(settings, cancel)
    deadline = time.monotonic() + 5
    while sleepers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sleepers() == []


def test_steps_are_taken_from_the_registry_after_the_builder_forgot_them(rig: Rig, tmp_path: Path) -> None:
    dockerfile = "RUN echo made once > /tmp/step\nARG NOTE\nENV NOTE=${NOTE}\n"
    changes: dict[str, Any] = {"repository": "cached", "registry_cache": True}
    environments(settings_for(rig, tmp_path, dockerfile, **changes, build_args={"NOTE": "1"}), print)
    rig.docker("builder", "prune", "--all", "--force")
    said: list[str] = []
    made = environments(settings_for(rig, tmp_path, dockerfile, **changes, build_args={"NOTE": "2"}), said.append)
    assert made["it"].built
    step = next(line.split()[0] for line in said if "RUN echo made once" in line)
    assert f"{step} CACHED" in said


def test_a_wrong_password_is_an_error_and_the_right_one_is_left_nowhere(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    # What a desktop has: a store that knows nothing of this registry.
    (own / "config.json").write_text(json.dumps({"credsStore": "desktop"}))
    (own / "cli-plugins").symlink_to(Path(rig.env["DOCKER_CONFIG"], "cli-plugins"))
    monkeypatch.setenv("DOCKER_CONFIG", str(own))
    settings = settings_for(rig, tmp_path, "ENV A=1\n", "locked", registry=rig.locked_registry)

    def yard(password: str) -> Yard:
        def login() -> Credentials:
            return Credentials("AWS", password)

        return Yard(BuildxBuilder(login, network="host"), ImageRegistry(settings.registry, login), lambda name: False)

    said: list[str] = []
    with pytest.raises(RegistryRefused, match=r"answered 401 when asked for locked:ctx-"):
        yard("wrong").image(settings, settings.images["it"], said.append)
    order = order_of(settings, settings.images["it"], settings.registry.partition("://")[2])
    with pytest.raises(ImageBuildFailed, match=r"(?i)authorization failed|401|denied|unauthorized"):
        yard("wrong").builder.build(order, said.append)
    assert yard(PASSWORD).image(settings, settings.images["it"], said.append).built
    assert PASSWORD not in "\n".join([*said, *(path.read_text() for path in own.rglob("*") if path.is_file())])


def test_the_buildspec_builds_what_codebuild_is_sent(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "NO_PROXY": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    plain = settings_for(rig, tmp_path, "COPY docker /opt/docker\n", "by-codebuild")
    shared = plain.model_dump(exclude={"kind", "builder", "network", "grace_s"})
    settings = CodeBuildImages(
        **{**shared, "region": "us-east-1", "buildkit_image": ""},
        project="images",
        source_uri="s3://builds/sources",
        buildspec=str(ROOT / "docker/buildspec.yml"),
        poll_s=0.1,
    )
    with moto_server() as aws, codebuild_api() as (fake, url):
        monkeypatch.setenv("AWS_ENDPOINT_URL", aws)
        monkeypatch.setenv("AWS_ENDPOINT_URL_CODEBUILD", url)
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="builds")
        fake.on_start = lambda build, request: run_buildspec(rig, tmp_path, build, request)
        made = environments(settings, print)["it"]
    _, layers = pulled(rig, made)
    assert any("opt/docker/Dockerfile" in layer.getnames() for layer in layers)


def run_buildspec(rig: Rig, folder: Path, build: Build, request: dict[str, Any]) -> None:
    """What CodeBuild does with a build, as far as it matters: sources, variables, phases in one shell, its exports."""
    bucket, _, key = request["sourceLocationOverride"].partition("/")
    sources = folder / "sources"
    packed = boto3.client("s3", region_name="us-east-1").get_object(Bucket=bucket, Key=key)["Body"].read()
    zipfile.ZipFile(io.BytesIO(packed)).extractall(sources)
    phases = yaml.safe_load(request["buildspecOverride"])["phases"]
    commands = [command for phase in ("pre_build", "build") for command in phases[phase]["commands"]]
    script = "\n".join([*commands, 'printf %s "$IMAGE_DIGEST" > ../digest'])
    variables = {entry["name"]: entry["value"] for entry in request["environmentVariablesOverride"]}

    def run() -> None:
        done = subprocess.run(["bash", "-c", script], cwd=sources, env={**os.environ, **variables})
        build["exportedEnvironmentVariables"] = [{"name": "IMAGE_DIGEST", "value": (folder / "digest").read_text()}]
        build["buildStatus"] = "FAILED" if done.returncode else "SUCCEEDED"

    threading.Thread(target=run, daemon=True).start()
