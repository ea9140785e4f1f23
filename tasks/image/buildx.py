"""Builds with ``docker buildx`` on this machine: the one place that runs docker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import BuilderNotReady, ImageBuildFailed
from tasks.image.docker_login import docker_environment
from tasks.image.order import BuildOrder, buildx_arguments
from tasks.image.registry import Credentials
from tasks.image.streamed import run_streamed

HIDDEN = "***"
MIN_LINE_CHARS = 6
"""Lines of a secret that are shorter, such as empty ones, are not looked for: they would blot out half a log."""


@dataclass(frozen=True)
class BuildxBuilder:
    """ImageBuilder. The context goes in through standard input, the login through a configuration of its own."""

    login: Callable[[], Credentials | None]
    builder: str = ""
    network: str = ""
    timeout_s: float = 7200.0
    grace_s: float = 10.0
    env: Mapping[str, str] | None = None
    """Environment of docker; None takes this process's."""

    def build(self, order: BuildOrder, say: Callable[[str], object]) -> str:
        env = dict(os.environ if self.env is None else self.env)
        _require_secrets(order.secrets, env)
        _require_buildx(env)
        credentials = self.login()
        secrets = [env[variable] for variable in order.secrets.values()]
        hidden = hidden_texts([*secrets, *([credentials.password] if credentials else [])])
        host = order.image.partition("/")[0]
        with (
            docker_environment(env, host, credentials) as docker_env,
            tempfile.TemporaryDirectory(prefix="image-build-") as folder,
        ):
            context, metadata = Path(folder, "context.tar"), Path(folder, "metadata.json")
            context.write_bytes(order.context.tar())
            with context.open("rb") as stdin:
                argv = self.argv(order, metadata)
                run_streamed(
                    argv, stdin, docker_env, self.timeout_s, self.grace_s, say, lambda line: without(hidden, line)
                )
            return _digest(metadata)

    def argv(self, order: BuildOrder, metadata: Path) -> list[str]:
        argv = ["docker", "buildx", "build"]
        argv += ["--builder", self.builder] if self.builder else []
        argv += ["--network", self.network] if self.network else []
        return [*argv, *buildx_arguments(order), "--metadata-file", str(metadata), "-"]


def _require_secrets(secrets: Mapping[str, str], env: Mapping[str, str]) -> None:
    missing = sorted({variable for variable in secrets.values() if not env.get(variable)})
    if missing:
        raise BuilderNotReady(
            f"{', '.join(missing)} is not set in this environment, the build's secrets come from there "
            f"(image.secrets: {', '.join(sorted(secrets))}); set it, or take the secret out"
        )


def _require_buildx(env: Mapping[str, str]) -> None:
    if shutil.which("docker", path=env.get("PATH")) is None:
        raise BuilderNotReady("there is no docker on the PATH; install docker and buildx, or set image.kind: codebuild")
    asked = subprocess.run(["docker", "buildx", "version"], env=dict(env), capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        said = (asked.stderr.strip().splitlines() or ["no word"])[0]
        raise BuilderNotReady(f"docker has no buildx ({said}); install its plugin, or set image.kind: codebuild")


def hidden_texts(secrets: Sequence[str]) -> list[str]:
    """What must not be seen of these secrets: each as a whole and its lines, longest first."""
    whole = {secret.strip() for secret in secrets} - {""}
    lines = {line.strip() for secret in secrets for line in secret.splitlines() if len(line.strip()) >= MIN_LINE_CHARS}
    return sorted(whole | lines, key=len, reverse=True)


def without(hidden: Sequence[str], line: str) -> str:
    for text in hidden:
        line = line.replace(text, HIDDEN)
    return line


def _digest(metadata: Path) -> str:
    digest = json.loads(metadata.read_text()).get("containerimage.digest") if metadata.is_file() else None
    if not digest:
        raise ImageBuildFailed(
            "buildx ended well and named no digest; its builder must be able to push: see image.builder"
        )
    return str(digest)
