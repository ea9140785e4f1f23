"""What is sent to a builder, under which name, with which arguments; the settings; the Dockerfile's linter."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tasks.errors import ImageBuildFailed
from tasks.image.context import collect
from tasks.image.order import BuildOrder, buildx_arguments
from tasks.image.settings import BuildxImages, CodeBuildImages, ImageSettings, InstalledEnvironments

ROOT = Path(__file__).resolve().parents[3]
ZEROS = "sha256:" + "0" * 64
IMAGE = {"repository": "maze-train", "target": "files", "files": ["docker/Dockerfile"]}
BUILT = {
    "images": {"train": IMAGE},
    "context": ".",
    "registry": "http://127.0.0.1:5000",
    "login": "none",
    "timeout_s": 60,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"docker/Dockerfile": "FROM a", "rl/a.py": "a = 1", "rl/deep/b.py": "b = 2"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "rl/__pycache__").mkdir()
    (tmp_path / "rl/__pycache__/a.cpython-312.pyc").write_bytes(b"\0")
    return tmp_path


def order(folder: Path, **changes: Any) -> BuildOrder:
    made = BuildOrder(
        context=collect(folder, ["docker/Dockerfile", "rl/**/*.py"]),
        dockerfile="docker/Dockerfile",
        target="train",
        build_args={"B": "2", "A": "1"},
        platform="linux/amd64",
        secrets={"pip_conf": "PIP_CONF_TEXT"},
        image="127.0.0.1:5000/maze-train",
        registry_cache=True,
    )
    return replace(made, **changes)


def test_only_what_is_listed_is_sent(folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(order(folder).context.tar())) as archive:
        sent = {entry.name: (entry.mode, entry.mtime, entry.uid) for entry in archive}
    assert sent == dict.fromkeys(("docker/Dockerfile", "rl/a.py", "rl/deep/b.py"), (0o644, 0, 0))
    with zipfile.ZipFile(io.BytesIO(order(folder).context.zip())) as archive:
        assert archive.namelist() == list(sent)
        assert archive.read("rl/a.py") == b"a = 1"


def test_the_same_files_are_the_same_bytes_under_the_same_tag(folder: Path) -> None:
    before = order(folder)
    (folder / "rl/a.py").touch()
    (folder / "rl/a.py").chmod(0o600)
    (folder / "README.md").write_text("not sent")
    after = order(folder, build_args={"A": "1", "B": "2"})
    assert (after.context.tar(), after.context.zip()) == (before.context.tar(), before.context.zip())
    assert before.tag == after.tag
    assert before.tag.startswith("ctx-")
    assert len(before.tag) == 4 + 16


def test_whatever_decides_what_is_built_changes_the_tag(folder: Path) -> None:
    tags = [order(folder).tag]
    tags += [order(folder, target="serve").tag, order(folder, platform="linux/arm64").tag]
    tags += [order(folder, build_args={"A": "1"}).tag, order(folder, build_args={"A": "1", "B": "3"}).tag]
    (folder / "rl/a.py").chmod(0o755)
    tags.append(order(folder).tag)
    (folder / "rl/a.py").write_text("a = 2")
    tags.append(order(folder).tag)
    (folder / "rl/a.py").rename(folder / "rl/c.py")
    tags.append(order(folder).tag)
    assert len(set(tags)) == len(tags)


def test_where_it_goes_and_how_is_not_part_of_the_tag(folder: Path) -> None:
    other = order(folder, image="elsewhere/maze", secrets={}, registry_cache=False)
    assert other.tag == order(folder).tag


def test_a_pattern_without_files_and_a_link_are_errors(folder: Path) -> None:
    with pytest.raises(ImageBuildFailed, match=r"no file below .* matches serving/\*\.py; correct image\.images"):
        collect(folder, ["serving/*.py"])
    (folder / "rl/link.py").symlink_to(folder / "rl/a.py")
    with pytest.raises(ImageBuildFailed, match=r"rl/link\.py is a link"):
        collect(folder, ["rl/*.py"])


def test_buildx_gets_these_arguments(folder: Path) -> None:
    made = order(folder)
    cache = "type=registry,ref=127.0.0.1:5000/maze-train:buildcache"
    assert buildx_arguments(made) == [
        *("--progress=plain", "--provenance=false", "--platform", "linux/amd64"),
        *("--target", "train", "--file", "docker/Dockerfile", "--tag", f"127.0.0.1:5000/maze-train:{made.tag}"),
        *("--build-arg", "A=1", "--build-arg", "B=2", "--secret", "id=pip_conf,env=PIP_CONF_TEXT"),
        *("--cache-from", cache, "--cache-to", f"{cache},mode=max,image-manifest=true,oci-mediatypes=true"),
        "--push",
    ]
    plain = buildx_arguments(order(folder, build_args={}, secrets={}, registry_cache=False))
    assert not {"--build-arg", "--secret", "--cache-from", "--cache-to"} & set(plain)


def test_the_kind_chooses_the_settings() -> None:
    kinds: TypeAdapter[Any] = TypeAdapter(ImageSettings)
    codebuild = {"kind": "codebuild", "project": "p", "source_uri": "s3://b/k", "region": "us-east-1"}
    assert isinstance(kinds.validate_python({"kind": "installed", "locks": {}}), InstalledEnvironments)
    assert isinstance(kinds.validate_python({"kind": "buildx", **BUILT}), BuildxImages)
    assert isinstance(kinds.validate_python({**BUILT, **codebuild}), CodeBuildImages)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": {"train": {**IMAGE, "build_args": {"TRAIN_BASE_IMAGE": "ubuntu:24.04"}}}}, "a tag moves"),
        ({"images": {"train": {**IMAGE, "files": ["rl/*.py"]}}}, "not among the files of train"),
        ({"registry": "127.0.0.1:5000"}, "pattern"),
        ({"login": "ecr"}, "region is empty"),
        ({"kind": "codebuild", "project": "p", "source_uri": "s3://b", "buildkit_image": ""}, "needs a buildkit_image"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        TypeAdapter(ImageSettings).validate_python({"kind": "buildx", **BUILT, **change})


def test_a_pinned_base_is_taken() -> None:
    pinned = {**IMAGE, "build_args": {"TRAIN_BASE_IMAGE": f"nvidia/cuda@{ZEROS}"}}
    assert BuildxImages.model_validate({**BUILT, "images": {"train": pinned}}).kind == "buildx"


def test_the_dockerfile_is_clean() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run(
        [linter, "--config", "docker/hadolint.yaml", "docker/Dockerfile"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_images_install_their_locks_whole_and_nothing_else() -> None:
    joined = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ")
    installs = [line for line in joined.splitlines() if "--requirement" in line]
    assert len(installs) == 3
    assert all({"--no-deps", "--require-hashes"} <= set(line.split()) for line in installs)
