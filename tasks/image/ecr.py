"""ECR through boto3: a login, and repositories that are there before anything is pushed."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3
from botocore.exceptions import ClientError

from tasks.clients.ask_aws import ask_aws
from tasks.errors import AwsRefused
from tasks.image.registry import Credentials

ACCOUNT = re.compile(r"^(\d{12})\.dkr\.ecr\.")
CACHE_TAGS = "buildcache*"


class Ecr:
    """The registry of one account and region. Raises AwsRefused."""

    def __init__(self, region: str, host: str, client: Any = None) -> None:
        match = ACCOUNT.match(host)
        # Without the account in its name, as on loopback, ECR takes the identity's own.
        self._registry = {"registryId": match.group(1)} if match else {}
        self._ecr = client or boto3.client("ecr", region_name=region)

    def credentials(self) -> Credentials:
        """A token made now. It holds for twelve hours; what ECR says about its end is not looked at."""
        answer = ask_aws(self._ecr.get_authorization_token, "ecr:GetAuthorizationToken")
        token = base64.b64decode(answer["authorizationData"][0]["authorizationToken"]).decode()
        user, _, password = token.partition(":")
        return Credentials(user, password)

    def ensure_repository(self, name: str) -> bool:
        """Make the repository; False when it is there. Its tags never move, but for the build cache's."""
        try:
            ask_aws(
                self._ecr.create_repository,
                "ecr:CreateRepository",
                repositoryName=name,
                imageTagMutability="IMMUTABLE_WITH_EXCLUSION",
                imageTagMutabilityExclusionFilters=[{"filterType": "WILDCARD", "filter": CACHE_TAGS}],
                imageScanningConfiguration={"scanOnPush": True},
                **self._registry,
            )
        except AwsRefused as refusal:
            if _code(refusal.__cause__) == "RepositoryAlreadyExistsException":
                return False
            raise
        return True

    def images(self, repository: str) -> list[PushedImage]:
        """What this pipeline has pushed there, the newest first; the build cache is not among it."""
        pages = self._ecr.get_paginator("describe_images")
        try:
            found = [
                image
                for page in pages.paginate(repositoryName=repository, **self._registry)
                for image in page["imageDetails"]
                if any(tag.startswith("ctx-") for tag in image.get("imageTags", []))
            ]
        except ClientError as error:
            if _code(error) == "RepositoryNotFoundException":
                return []
            raise AwsRefused(f"{error}; check that the identity has ecr:DescribeImages") from error
        found.sort(key=lambda image: image["imagePushedAt"], reverse=True)
        return [PushedImage(i["imageDigest"], i["imageSizeInBytes"], i["imagePushedAt"]) for i in found]

    def delete(self, repository: str, digest: str) -> None:
        """Delete one image with all its tags; one that is gone is done.

        ECR answers 200 for what it did not delete, too: the reasons stand in ``failures``.
        """
        answer = ask_aws(
            self._ecr.batch_delete_image,
            "ecr:BatchDeleteImage",
            repositoryName=repository,
            imageIds=[{"imageDigest": digest}],
            **self._registry,
        )
        failures = [said for said in answer.get("failures", []) if said.get("failureCode") != "ImageNotFound"]
        if failures:
            said = "; ".join(f"{failure.get('failureCode')}: {failure.get('failureReason')}" for failure in failures)
            raise AwsRefused(
                f"ECR did not delete {repository}@{digest} ({said}); remove what refers to it (an image index, a "
                "lifecycle rule), then clean up again"
            )


@dataclass(frozen=True)
class PushedImage:
    """One image of a repository."""

    digest: str
    """sha256:<64 hex digits>, of its manifest."""
    size_bytes: int
    """Of its compressed layers."""
    pushed_at: datetime


def _code(error: BaseException | None) -> str:
    return str(error.response.get("Error", {}).get("Code")) if isinstance(error, ClientError) else ""
