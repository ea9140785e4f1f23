"""Settings of what a run's processes run in: frozen, strict, documented by attribute docstrings."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.settings import Settings

UNPINNED = "@sha256:" + "0" * 64
"""Stands for an image whose digest nobody has looked up yet: nothing can be pulled under it."""
PINNED = re.compile(r"@sha256:[0-9a-f]{64}$")


class ImageSpec(Settings):
    """One image of the Dockerfile."""

    repository: str = Field(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")
    """Its name in the registry."""
    target: str
    """Stage of the Dockerfile."""
    files: tuple[str, ...] = Field(min_length=1)
    """What is sent to the builder and nothing else: patterns below ``context``, such as ``rl/**/*.py``."""
    build_args: dict[str, str] = Field(default={})
    """ARGs of the Dockerfile. They can be read from the image, so never a secret."""

    @model_validator(mode="after")
    def _bases_do_not_move(self) -> ImageSpec:
        loose = [k for k, value in self.build_args.items() if k.endswith("BASE_IMAGE") and not PINNED.search(value)]
        if loose:
            raise ValueError(
                f"{', '.join(loose)} must end in @sha256:<64 hex digits>: a tag moves, and an image is built again "
                "only when its inputs change; docker buildx imagetools inspect <image> shows the digest"
            )
        return self


class InstalledEnvironments(Settings):
    """No containers: the environments are installed from locks on the machine that runs everything."""

    kind: Literal["installed"] = "installed"
    locks: dict[str, str]
    """Lock file of each environment, by its name: train, serve."""


class BuiltImages(Settings):
    """Images that are built and pushed where the registry does not have them yet."""

    images: dict[str, ImageSpec] = Field(min_length=1)
    """By name: train, serve."""
    context: str
    """Folder of this project; only ``files`` of an image are sent from it."""
    dockerfile: str = "docker/Dockerfile"
    """Path below ``context``; among the ``files`` of every image."""
    platform: str = "linux/amd64"
    """Operating system and processor of the cluster's nodes."""
    registry: str = Field(pattern=r"^https?://[^/]+$")
    """With its scheme, for example ``https://123456789012.dkr.ecr.us-east-1.amazonaws.com``."""
    login: Literal["none", "ecr"]
    """How to log in. ecr: a token of the AWS chain, and repositories are made when they are missing."""
    region: str = ""
    """AWS region of the registry and of CodeBuild."""
    registry_cache: bool = True
    """Keep build steps in the registry too, under the tag ``buildcache`` of each repository."""
    secrets: dict[str, str] = Field(default={})
    """Build secret's id -> name of the environment variable that holds it where the build runs. Never the value."""
    timeout_s: float = Field(gt=0)
    """How long one build may take, in seconds."""

    @model_validator(mode="after")
    def _everything_is_named(self) -> BuiltImages:
        if self.login == "ecr" and not self.region:
            raise ValueError("login is ecr and region is empty: ECR's tokens are made in a region, name it")
        unsent = [name for name, image in self.images.items() if self.dockerfile not in image.files]
        if unsent:
            raise ValueError(f"{self.dockerfile} is not among the files of {', '.join(unsent)}; list it there")
        return self


class BuildxImages(BuiltImages):
    """Built by ``docker buildx`` of the machine that runs this stage."""

    kind: Literal["buildx"] = "buildx"
    builder: str = ""
    """Name of a buildx builder; empty takes the current one."""
    network: str = ""
    """Network of RUN steps, such as ``host``; empty takes the builder's own."""
    grace_s: float = Field(default=10.0, gt=0)
    """How long a build that is told to stop may take before it is killed, in seconds."""


class CodeBuildImages(BuiltImages):
    """Built by AWS CodeBuild, which gets the files through S3."""

    kind: Literal["codebuild"] = "codebuild"
    project: str
    """CodeBuild project: its service role, network and default image are the account's business."""
    source_uri: str = Field(pattern=r"^s3://[^/]+(/.*[^/])?$")
    """Where the files go, in the project's region."""
    compute_type: str = "BUILD_GENERAL1_XLARGE"
    """Machine: a CUDA image of 20 GB with its layers wants 128 GB of disk at least (Medium)."""
    buildspec: str = "docker/buildspec.yml"
    """What CodeBuild runs; path below ``context``."""
    buildkit_image: str = "moby/buildkit:buildx-stable-1"
    """BuildKit of the build; empty takes the one in CodeBuild's Docker, which cannot keep a cache in the registry."""
    queued_timeout_s: float = Field(default=1800.0, ge=300, le=28800)
    """How long a build may wait for a machine, in seconds; CodeBuild counts in minutes."""
    poll_s: float = Field(default=5.0, gt=0)
    """Pause between two looks, in seconds."""

    @model_validator(mode="after")
    def _cache_has_a_builder(self) -> CodeBuildImages:
        if self.registry_cache and not self.buildkit_image:
            raise ValueError("registry_cache needs a buildkit_image: name one, or set registry_cache to false")
        return self


ImageSettings = Annotated[InstalledEnvironments | BuildxImages | CodeBuildImages, Field(discriminator="kind")]
