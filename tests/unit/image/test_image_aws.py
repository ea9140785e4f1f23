"""ECR, S3 and CloudWatch Logs by moto, CodeBuild by a fake on loopback: nothing of them is in the code under test."""

from __future__ import annotations

import json
import shlex
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests

from tasks.errors import AwsRefused, ImageBuildFailed
from tasks.image.build import Yard, builder_of, environments, order_of
from tasks.image.codebuild import CodeBuildBuilder, minutes
from tasks.image.ecr import Ecr
from tasks.image.registry import ImageRegistry
from tasks.image.settings import CodeBuildImages, ImageSpec
from tasks.records import ImageRef
from tests.moto_server import moto_server
from tests.unit.image.codebuild_api import Build, FakeCodeBuild, codebuild_api
from tests.unit.image.registry_api import FakeRegistry, registry_api

REGION, BUCKET, GROUP, STREAM = "us-east-1", "maze-builds", "/aws/codebuild/images", "1"
DIGEST = "sha256:" + "7" * 64
HOST = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


class Cloud:
    """One account: CodeBuild's script, a registry, settings, and all that was said."""

    def __init__(self, folder: Path, codebuild: FakeCodeBuild, registry: FakeRegistry) -> None:
        self.codebuild, self.registry, self.said = codebuild, registry, list[str]()
        (folder / "docker").mkdir()
        (folder / "docker/Dockerfile").write_text("FROM scratch")
        (folder / "docker/buildspec.yml").write_text("version: 0.2")
        self.settings = CodeBuildImages(
            images={"train": ImageSpec(repository="maze/train", target="train", files=("docker/Dockerfile",))},
            context=str(folder),
            registry=registry.url,
            login="none",
            region=REGION,
            secrets={"pip_conf": "PIP_CONF"},
            timeout_s=600,
            project="images",
            source_uri=f"s3://{BUCKET}/sources",
            poll_s=0.01,
        )

    @property
    def source(self) -> str:
        return f"{BUCKET}/sources/maze/train-{self.order().tag}.zip"

    def order(self) -> Any:
        return order_of(self.settings, self.settings.images["train"], self.registry.url.removeprefix("http://"))

    def image(self) -> ImageRef:
        return environments(self.settings, self.said.append)["train"]

    def succeeds(self, digest: str = DIGEST) -> Callable[[Build], None]:
        def end(build: Build) -> None:
            self.registry.digests[f"maze/train:{self.order().tag}"] = DIGEST
            build |= {"buildStatus": "SUCCEEDED", "currentPhase": "COMPLETED"}
            build["exportedEnvironmentVariables"] = [{"name": "IMAGE_DIGEST", "value": digest}]

        return end


def enters(phase: str, *lines: str) -> Callable[[Build], None]:
    """The build goes on to a phase and writes to its log."""

    def go_on(build: Build) -> None:
        build |= {"currentPhase": phase, "logs": {"groupName": GROUP, "streamName": STREAM, "deepLink": "a-link"}}
        if lines:
            events = [{"timestamp": int(time.time() * 1000), "message": f"{line}\n"} for line in lines]
            boto3.client("logs", region_name=REGION).put_log_events(
                logGroupName=GROUP, logStreamName=STREAM, logEvents=events
            )

    return go_on


def fails(build: Build) -> None:
    build |= {"buildStatus": "FAILED", "currentPhase": "COMPLETED"}
    context = {"statusCode": "COMMAND_EXECUTION_ERROR", "message": "exit status 1"}
    build["phases"] = [
        {"phaseType": "PRE_BUILD", "phaseStatus": "SUCCEEDED", "contexts": [{"message": ""}]},
        {"phaseType": "BUILD", "phaseStatus": "FAILED", "contexts": [context]},
    ]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def aws(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    requests.post(f"{moto}/moto-api/reset", timeout=10)
    return moto


@pytest.fixture
def cloud(aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    boto3.client("s3", region_name=REGION).create_bucket(Bucket=BUCKET)
    logs = boto3.client("logs", region_name=REGION)
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_stream(logGroupName=GROUP, logStreamName=STREAM)
    with codebuild_api() as (fake, url), registry_api() as registry:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CODEBUILD", url)
        yield Cloud(tmp_path, fake, registry)


def test_a_login_is_taken_though_its_end_is_said_to_be_past(aws: str) -> None:
    login = Ecr(REGION, HOST).credentials()
    assert (login.user, login.password) == ("AWS", "123456789012-auth-token")
    assert "auth-token" not in repr(login)


def test_a_repository_is_made_once_and_its_tags_do_not_move(aws: str) -> None:
    ecr = Ecr(REGION, HOST)
    assert [ecr.ensure_repository("maze/train"), ecr.ensure_repository("maze/train")] == [True, False]
    made = boto3.client("ecr", region_name=REGION).describe_repositories(repositoryNames=["maze/train"])["repositories"]
    assert made[0]["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    assert made[0]["imageTagMutabilityExclusionFilters"] == [{"filterType": "WILDCARD", "filter": "buildcache*"}]
    assert made[0]["imageScanningConfiguration"]["scanOnPush"] is True


def test_a_refusal_names_the_permission(cloud: Cloud) -> None:
    cloud.codebuild.refusal = ("AccessDeniedException", "not authorized")
    with pytest.raises(AwsRefused, match=r"AccessDeniedException: not authorized; .*codebuild:ListBuildsForProject"):
        cloud.image()
    with pytest.raises(AwsRefused, match="ecr:CreateRepository"):
        Ecr(REGION, HOST).ensure_repository("NOT/A/NAME")


def test_a_build_gets_its_files_and_arguments_and_is_heard_to_its_end(cloud: Cloud) -> None:
    cloud.codebuild.script = [
        lambda build: None,
        enters("PRE_BUILD", "login", "builder"),
        enters("BUILD", "#1 pulling", "#2 done"),
        cloud.succeeds(),
    ]
    made = cloud.image()
    assert (made.sha256, made.built) == ("7" * 64, True)
    request = dict(cloud.codebuild.asked)["StartBuild"]
    assert request["sourceLocationOverride"] == cloud.source
    assert (request["timeoutInMinutesOverride"], request["queuedTimeoutInMinutesOverride"]) == (10, 30)
    assert request["privilegedModeOverride"] is True
    assert request["buildspecOverride"] == "version: 0.2"
    variables = {entry["name"]: entry["value"] for entry in request["environmentVariablesOverride"]}
    arguments = shlex.split(variables["BUILDX_ARGUMENTS"])
    assert arguments[-1] == "--push"
    assert "id=pip_conf,env=PIP_CONF" in arguments
    bucket, _, key = cloud.source.partition("/")
    body = boto3.client("s3", region_name=REGION).get_object(Bucket=bucket, Key=key)["Body"].read()
    assert zipfile.ZipFile(BytesIO(body)).namelist() == ["docker/Dockerfile"]
    heard = [line for line in cloud.said if not line.startswith(("building", "127.0.0.1"))]
    assert heard == [
        "CodeBuild takes it up: images:1",
        "CodeBuild: QUEUED",
        "CodeBuild: PRE_BUILD",
        "login",
        "builder",
        "CodeBuild: BUILD",
        "#1 pulling",
        "#2 done",
        "CodeBuild: COMPLETED",
    ]


def test_what_the_registry_has_starts_no_build(cloud: Cloud) -> None:
    cloud.registry.digests[f"maze/train:{cloud.order().tag}"] = DIGEST
    assert cloud.image().built is False
    assert cloud.codebuild.asked == []


def test_a_failure_gives_codebuilds_reason_and_the_last_lines(cloud: Cloud) -> None:
    cloud.codebuild.script = [enters("BUILD", "ERROR: no such file"), fails]
    wanted = (
        r"images:1 ended as FAILED: BUILD: COMMAND_EXECUTION_ERROR exit status 1; .*\(a-link\):\nERROR: no such file"
    )
    with pytest.raises(ImageBuildFailed, match=wanted):
        cloud.image()
    assert "StopBuild" not in cloud.codebuild.actions()


def test_a_digest_that_the_registry_does_not_have_is_an_error(cloud: Cloud) -> None:
    cloud.codebuild.script = [cloud.succeeds("sha256:" + "1" * 64)]
    with pytest.raises(ImageBuildFailed, match=f"the builder pushed sha256:1+ and the registry has {DIGEST}"):
        cloud.image()
    cloud.registry.digests.clear()
    cloud.codebuild.script = [lambda build: build.update(buildStatus="SUCCEEDED")]
    with pytest.raises(ImageBuildFailed, match="exported IMAGE_DIGEST=''"):
        cloud.image()


def test_a_second_call_follows_the_build_that_runs(cloud: Cloud) -> None:
    request = {"projectName": "images", "sourceTypeOverride": "S3"}
    cloud.codebuild.start({**request, "sourceLocationOverride": "another.zip"})
    ended = cloud.codebuild.start({**request, "sourceLocationOverride": cloud.source})["build"]
    ended["buildStatus"] = "FAILED"
    running = cloud.codebuild.start({**request, "sourceLocationOverride": cloud.source})["build"]
    cloud.codebuild.script = [lambda build: None, lambda build: cloud.succeeds()(running)]
    assert cloud.image().built is True
    assert "StartBuild" not in cloud.codebuild.actions()
    assert f"CodeBuild builds it already: {running['id']}" in cloud.said


def test_whoever_ends_the_call_stops_the_build(cloud: Cloud) -> None:
    class Cancelled(BaseException):
        pass

    def cancel(seconds: float) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        builder(cloud, sleep=cancel).build(cloud.order(), cloud.said.append)
    assert cloud.codebuild.actions()[-1] == "StopBuild"
    assert cloud.codebuild.builds["images:1"]["buildStatus"] == "STOPPED"


def test_a_build_that_takes_too_long_is_stopped(cloud: Cloud) -> None:
    cloud.codebuild.script = [enters("BUILD", "#1 compiling")]
    times = iter([0.0, 1.0, 9999.0])
    slow = builder(cloud, sleep=lambda seconds: None, clock=lambda: next(times))
    with pytest.raises(ImageBuildFailed, match=r"images:1 was stopped in BUILD after 2400 s; .*\n#1 compiling"):
        slow.build(cloud.order(), cloud.said.append)
    assert cloud.codebuild.actions()[-1] == "StopBuild"


def builder(cloud: Cloud, **changes: Any) -> CodeBuildBuilder:
    made = builder_of(cloud.settings, lambda: None)
    assert isinstance(made, CodeBuildBuilder)
    return CodeBuildBuilder(**{**vars(made), **changes})


def test_a_log_that_may_not_be_read_does_not_end_the_build(cloud: Cloud) -> None:
    gone = {"logs": {"groupName": "gone", "streamName": "gone"}}
    cloud.codebuild.script = [lambda build: build.update(gone), cloud.succeeds()]
    assert cloud.image().built is True


def test_repositories_are_made_before_a_build_when_ecr_is_the_registry(cloud: Cloud) -> None:
    settings = cloud.settings.model_copy(update={"login": "ecr"})
    cloud.registry.password = "123456789012-auth-token"
    cloud.codebuild.script = [cloud.succeeds()]
    assert environments(settings, cloud.said.append)["train"].built is True
    assert "repository maze/train was made" in cloud.said
    variables = json.dumps(dict(cloud.codebuild.asked)["StartBuild"]["environmentVariablesOverride"])
    assert "auth-token" not in variables
    assert '"IMAGE_LOGIN", "value": "ecr"' in variables


def test_the_registry_is_asked_with_a_token_made_now(cloud: Cloud) -> None:
    made: list[str] = []

    class Counting(Ecr):
        def credentials(self) -> Any:
            made.append("token")
            return super().credentials()

    cloud.registry.password = "123456789012-auth-token"
    cloud.codebuild.script = [cloud.succeeds()]
    registry = ImageRegistry(cloud.registry.url, Counting(REGION, HOST).credentials)
    yard = Yard(builder(cloud), registry, lambda name: False)
    yard.image(cloud.settings, cloud.settings.images["train"], cloud.said.append)
    # Before the build, and after it: a token may end while an image is built.
    assert made == ["token", "token"]


@pytest.mark.parametrize(("seconds", "expected"), [(1, 5), (300, 5), (301, 6), (7200, 120), (1e9, 2160)])
def test_codebuild_counts_in_minutes(seconds: float, expected: int) -> None:
    assert minutes(seconds, 5, 2160) == expected
