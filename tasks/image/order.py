"""One image to build, whoever builds it, and buildx's arguments for it: the same here and in CodeBuild. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tasks.image.context import BuildContext


@dataclass(frozen=True)
class BuildOrder:
    context: BuildContext
    dockerfile: str
    target: str
    build_args: Mapping[str, str]
    platform: str
    secrets: Mapping[str, str]
    """Id -> name of the environment variable that holds it where the build runs."""
    image: str
    """Registry's host and repository."""
    registry_cache: bool

    @property
    def tag(self) -> str:
        """``ctx-<16 hex digits>``: says what goes in, so that a registry can be asked whether it is built."""
        return f"ctx-{self.context.digest(self.target, self.build_args, self.platform)[:16]}"

    @property
    def reference(self) -> str:
        return f"{self.image}:{self.tag}"


class ImageBuilder(Protocol):
    """Builds and pushes."""

    def build(self, order: BuildOrder, say: Callable[[str], object]) -> str:
        """The digest of the pushed manifest, ``sha256:...``; every line of the build goes to ``say`` as it comes.

        Raises ImageBuildFailed. Whatever ends this call early ends the build as well.
        """
        ...


def buildx_arguments(order: BuildOrder) -> list[str]:
    """What follows ``docker buildx build``, but for the context and for what the place of the build decides."""
    arguments = ["--progress=plain", "--provenance=false", "--platform", order.platform]
    arguments += ["--target", order.target, "--file", order.dockerfile, "--tag", order.reference]
    for name, value in sorted(order.build_args.items()):
        arguments += ["--build-arg", f"{name}={value}"]
    for name, variable in sorted(order.secrets.items()):
        arguments += ["--secret", f"id={name},env={variable}"]
    if order.registry_cache:
        cache = f"type=registry,ref={order.image}:buildcache"
        arguments += ["--cache-from", cache]
        arguments += ["--cache-to", f"{cache},mode=max,image-manifest=true,oci-mediatypes=true"]
    return [*arguments, "--push"]
