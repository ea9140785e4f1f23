"""Builds with AWS CodeBuild through boto3: files to S3, a build of them, its phases and log lines as they come.

A build is found by what it builds: the key of its files holds their digest, so a second call follows the first one's.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from tasks.clients.ask_aws import ask_aws
from tasks.errors import AwsRefused, ImageBuildFailed
from tasks.image.codebuild_log import BuildLog
from tasks.image.order import BuildOrder, buildx_arguments

PATIENT = Config(retries={"mode": "standard", "max_attempts": 10})
"""A build of an hour is looked at hundreds of times; one look that fails must not end it."""
Build = dict[str, Any]


@dataclass(frozen=True)
class CodeBuildBuilder:
    """ImageBuilder. The build's secrets are variables of the CodeBuild project, nothing of them passes through here."""

    region: str
    project: str
    source_uri: str
    compute_type: str
    buildspec: str
    """The document itself."""
    buildkit_image: str
    login: str
    timeout_s: float
    queued_timeout_s: float
    poll_s: float
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def build(self, order: BuildOrder, say: Callable[[str], object]) -> str:
        codebuild = boto3.client("codebuild", region_name=self.region, config=PATIENT)
        source = self._upload(order)
        build = self._running(codebuild, source)
        if build is not None:
            say(f"CodeBuild builds it already: {build['id']}")
        else:
            build = self._start(codebuild, order, source)
            say(f"CodeBuild takes it up: {build['id']}")
        log = BuildLog(boto3.client("logs", region_name=self.region, config=PATIENT), say)
        try:
            ended = self._followed(codebuild, build["id"], log, say)
        except BaseException:
            # What ended this call stays its reason.
            with suppress(AwsRefused):
                ask_aws(codebuild.stop_build, "codebuild:StopBuild", id=build["id"])
            raise
        return _digest(ended, log.last_lines())

    def _upload(self, order: BuildOrder) -> str:
        """``bucket/key`` of the files; what is there under their digest is not sent again."""
        s3 = boto3.client("s3", region_name=self.region, config=PATIENT)
        bucket, _, prefix = self.source_uri.removeprefix("s3://").partition("/")
        name = f"{order.image.partition('/')[2]}-{order.tag}.zip"
        key = f"{prefix}/{name}" if prefix else name
        try:
            s3.head_object(Bucket=bucket, Key=key)
        except ClientError:
            # Also where only looking is forbidden; what stands in the way is told by the upload.
            ask_aws(s3.put_object, "s3:PutObject", Bucket=bucket, Key=key, Body=order.context.zip())
        return f"{bucket}/{key}"

    def _running(self, codebuild: Any, source: str) -> Build | None:
        """The newest builds of the project are looked through for one of the same files that has not ended."""
        ids = ask_aws(codebuild.list_builds_for_project, "codebuild:ListBuildsForProject", projectName=self.project)
        for build in self._look(codebuild, ids["ids"][:100]):
            if build["buildStatus"] == "IN_PROGRESS" and build["source"].get("location") == source:
                return build
        return None

    def _start(self, codebuild: Any, order: BuildOrder, source: str) -> Build:
        variables = {
            "BUILDX_ARGUMENTS": shlex.join(buildx_arguments(order)),
            "BUILDKIT_IMAGE": self.buildkit_image,
            "IMAGE_LOGIN": self.login,
            "IMAGE_REGION": self.region,
            "IMAGE_REGISTRY": order.image.partition("/")[0],
        }
        # No idempotencyToken: for five minutes it would bring a failed build back.
        return ask_aws(
            codebuild.start_build,
            "codebuild:StartBuild",
            projectName=self.project,
            sourceTypeOverride="S3",
            sourceLocationOverride=source,
            buildspecOverride=self.buildspec,
            computeTypeOverride=self.compute_type,
            privilegedModeOverride=True,
            timeoutInMinutesOverride=minutes(self.timeout_s, 5, 2160),
            queuedTimeoutInMinutesOverride=minutes(self.queued_timeout_s, 5, 480),
            environmentVariablesOverride=[
                {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in variables.items() if value
            ],
        )["build"]

    def _look(self, codebuild: Any, ids: Sequence[str]) -> list[Build]:
        if not ids:
            return []
        return ask_aws(codebuild.batch_get_builds, "codebuild:BatchGetBuilds", ids=list(ids))["builds"]

    def _followed(self, codebuild: Any, build_id: str, log: BuildLog, say: Callable[[str], object]) -> Build:
        """The build once it has ended, however it did."""
        limit_s, phase = self.timeout_s + self.queued_timeout_s, ""
        deadline = self.clock() + limit_s
        while True:
            found = self._look(codebuild, [build_id])
            if not found:
                raise ImageBuildFailed(f"CodeBuild does not know {build_id} any more; run again")
            build = found[0]
            if build.get("currentPhase", "") != phase:
                phase = build.get("currentPhase", "")
                say(f"CodeBuild: {phase}")
            log.read(build.get("logs", {}))
            if build["buildStatus"] != "IN_PROGRESS":
                log.drain(build.get("logs", {}))
                return build
            if self.clock() >= deadline:
                raise ImageBuildFailed(
                    f"{build_id} was stopped in {phase} after {limit_s:g} s; give it more time (image.timeout_s, "
                    f"image.queued_timeout_s), or see where it hangs:\n{log.last_lines()}"
                )
            self.sleep(self.poll_s)


def minutes(seconds: float, least: int, most: int) -> int:
    """Whole minutes within CodeBuild's bounds."""
    return min(max(math.ceil(seconds / 60), least), most)


def _digest(build: Build, last_lines: str) -> str:
    if build["buildStatus"] != "SUCCEEDED":
        raise ImageBuildFailed(
            f"{build['id']} ended as {build['buildStatus']}: {_reasons(build)}; correct what it says, or see its log "
            f"({build.get('logs', {}).get('deepLink', 'no link')}):\n{last_lines}"
        )
    exported = {entry["name"]: entry.get("value", "") for entry in build.get("exportedEnvironmentVariables", [])}
    digest = exported.get("IMAGE_DIGEST", "")
    if not digest.startswith("sha256:"):
        raise ImageBuildFailed(
            f"{build['id']} succeeded and exported IMAGE_DIGEST={digest!r}; it must be the pushed manifest's digest: "
            "see docker/buildspec.yml"
        )
    return digest


def _reasons(build: Build) -> str:
    reasons = [
        f"{phase['phaseType']}: {context.get('statusCode', '')} {context.get('message', '')}".strip()
        for phase in build.get("phases", [])
        for context in phase.get("contexts", [])
        if phase.get("phaseStatus") != "SUCCEEDED" and context.get("message")
    ]
    return "; ".join(reasons) or "no phase says why"
