"""Stage: what the run's processes run in, by digest. An image is built where the registry does not have it yet.

Where it is built is a matter of settings: by docker here, by CodeBuild, or not at all where environments are installed
from locks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ImageBuildFailed
from tasks.image.buildx import BuildxBuilder
from tasks.image.codebuild import CodeBuildBuilder
from tasks.image.context import collect
from tasks.image.ecr import Ecr
from tasks.image.order import BuildOrder, ImageBuilder
from tasks.image.registry import Credentials, ImageRegistry
from tasks.image.settings import (
    UNPINNED,
    BuildxImages,
    BuiltImages,
    CodeBuildImages,
    ImageSettings,
    ImageSpec,
    InstalledEnvironments,
)
from tasks.records import ImageRef
from tasks.run import RunContext
from tasks.stage import stage

Say = Callable[[str], object]


@stage
def build_images(context: RunContext, settings: ImageSettings) -> dict[str, ImageRef]:
    """Every image by its name, built and pushed where it has to be, in MLflow as images.json; raises ImageBuildFailed.

    Installed environments come as ``<name>-lock``, with the digest of their lock.
    """
    made = environments(settings, context.page.say)
    rows = [{"name": name, **ref.model_dump()} for name, ref in made.items()]
    context.page.table("images", rows, "What the run's processes run in")
    context.run.text(json.dumps(rows, indent=1), "images.json")
    return made


def environments(settings: ImageSettings, say: Say) -> dict[str, ImageRef]:
    match settings:
        case InstalledEnvironments():
            return {f"{name}-lock": _lock(Path(path)) for name, path in settings.locks.items()}
        case BuildxImages() | CodeBuildImages():
            yard = Yard.of(settings)
            return {name: yard.image(settings, image, say) for name, image in settings.images.items()}


@dataclass(frozen=True)
class Yard:
    """A builder, the registry that it pushes to, and who makes repositories there."""

    builder: ImageBuilder
    registry: ImageRegistry
    ensure_repository: Callable[[str], bool]

    @classmethod
    def of(cls, settings: BuildxImages | CodeBuildImages) -> Yard:
        login: Callable[[], Credentials | None]
        if settings.login == "ecr":
            ecr = Ecr(settings.region, settings.registry.partition("://")[2])
            login, ensure = ecr.credentials, ecr.ensure_repository
        else:
            # Such a registry makes a repository when something is pushed to it.
            login, ensure = lambda: None, lambda name: False
        return cls(builder_of(settings, login), ImageRegistry(settings.registry, login), ensure)

    def image(self, settings: BuiltImages, spec: ImageSpec, say: Say) -> ImageRef:
        """The image from the registry, or else from the builder; the registry has the last word on the digest."""
        order = order_of(settings, spec, self.registry.host)
        digest = self.registry.digest(spec.repository, order.tag)
        if digest is not None:
            say(f"{order.reference} is there: {digest}")
            return _ref(order, digest, built=False)
        _require_bases(spec)
        if self.ensure_repository(spec.repository):
            say(f"repository {spec.repository} was made")
        say(f"building {order.reference} from {len(order.context.files)} files")
        try:
            pushed = self.builder.build(order, say)
        except ImageBuildFailed as failure:
            # Where tags do not move, another build of the same files that was pushed meanwhile makes this one fail.
            digest = self.registry.digest(spec.repository, order.tag)
            if digest is None:
                raise
            say(f"{order.reference} was pushed by another build meanwhile ({failure})")
            return _ref(order, digest, built=False)
        digest = self.registry.digest(spec.repository, order.tag)
        if digest != pushed:
            raise ImageBuildFailed(
                f"the builder pushed {pushed} and the registry has {digest} under {order.reference}; someone else "
                "pushes there too, or the builder pushed elsewhere: see image.registry, then run again"
            )
        say(f"{order.reference} is pushed: {pushed}")
        return _ref(order, pushed, built=True)


def builder_of(settings: BuildxImages | CodeBuildImages, login: Callable[[], Credentials | None]) -> ImageBuilder:
    """The builder that the settings name."""
    match settings:
        case BuildxImages():
            return BuildxBuilder(login, settings.builder, settings.network, settings.timeout_s, settings.grace_s)
        case CodeBuildImages():
            return CodeBuildBuilder(
                region=settings.region,
                project=settings.project,
                source_uri=settings.source_uri,
                compute_type=settings.compute_type,
                buildspec=Path(settings.context, settings.buildspec).read_text(),
                buildkit_image=settings.buildkit_image,
                login=settings.login,
                timeout_s=settings.timeout_s,
                queued_timeout_s=settings.queued_timeout_s,
                poll_s=settings.poll_s,
            )


def order_of(settings: BuiltImages, spec: ImageSpec, host: str) -> BuildOrder:
    return BuildOrder(
        context=collect(Path(settings.context), spec.files),
        dockerfile=settings.dockerfile,
        target=spec.target,
        build_args=spec.build_args,
        platform=settings.platform,
        secrets=settings.secrets,
        image=f"{host}/{spec.repository}",
        registry_cache=settings.registry_cache,
    )


def _require_bases(spec: ImageSpec) -> None:
    unknown = [name for name, value in spec.build_args.items() if value.endswith(UNPINNED)]
    if unknown:
        raise ImageBuildFailed(
            f"{', '.join(unknown)} of {spec.repository} has a digest of zeros; put the real one into prefect.yaml: "
            "docker buildx imagetools inspect <image> shows it"
        )


def _ref(order: BuildOrder, digest: str, built: bool) -> ImageRef:
    return ImageRef(
        uri=f"{order.image}@{digest}", sha256=digest.removeprefix("sha256:"), content=order.tag, built=built
    )


def _lock(path: Path) -> ImageRef:
    return ImageRef(uri=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
