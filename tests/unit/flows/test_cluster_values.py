"""Deployments of the cluster hold only what is true there, whoever registers them and from where."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flows.deployments import deployments

FOLDERS = ("/opt/maze", "/opt/venv", "/shared")
"""Of the images (docker/Dockerfile: WORKDIR, ENV PATH) and of the file system that all pods mount."""
ON_THE_CLUSTER = [name for name, entry in deployments().items() if entry["work_pool"]["name"] != "local"]
CLUSTERS = ("hyperpod", "kuberay")
DOCKERFILE = Path("docker/Dockerfile").read_text()


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_the_cluster_has_deployments_of_its_own() -> None:
    assert {"retrain/hyperpod", "cleanup/hyperpod", "promote/hyperpod"} <= set(ON_THE_CLUSTER)
    flows = {pool: {name.partition("/")[0] for name in ON_THE_CLUSTER if name.endswith(pool)} for pool in CLUSTERS}
    assert flows["kuberay"] == flows["hyperpod"]


def test_nothing_of_aws_is_in_those_of_kuberay() -> None:
    written = json.dumps([entry for name, entry in deployments().items() if name.endswith("/kuberay")]).lower()
    written = written.replace("on aws", "")
    assert [word for word in ("aws", "amazon", "arn:", "sagemaker", "ecr") if re.search(rf"\b{word}", written)] == []


@pytest.mark.parametrize("name", ON_THE_CLUSTER)
def test_nothing_is_filled_in_from_the_machine_that_registers_it(name: str) -> None:
    entry = deployments()[name]
    written = json.dumps([entry["parameters"], entry["work_pool"], entry.get("triggers", [])])
    assert "{{ $" not in written, "a laptop's environment would be written into it"
    assert "127.0.0.1" not in written
    assert "localhost" not in written


@pytest.mark.parametrize("name", ON_THE_CLUSTER)
def test_every_path_lies_in_an_image_or_on_the_shared_file_system(name: str) -> None:
    entry = deployments()[name]
    paths = [text for text in texts([entry["parameters"], entry["work_pool"]]) if text.startswith("/")]
    assert [path for path in paths if not re.match(rf"({'|'.join(FOLDERS)})(/|$)", path)] == []


def test_the_worker_s_image_has_what_its_runs_read_and_may_write_where_they_write() -> None:
    stage = DOCKERFILE.partition(" AS orchestrator\n")[2]
    copied = re.findall(r"^COPY (.+) /opt/maze/\S*$", stage, re.M)
    known = {part for line in copied for part in line.split()}
    images = deployments()["cleanup/hyperpod"]["parameters"]["platform"]["image"]["images"]
    wanted = {path.partition("/")[0] for image in images.values() for path in image["files"]}
    assert wanted | {"prefect.yaml", "flows", "tasks"} <= known
    assert "chown -R 1000:100 /opt/maze/.local" in stage
    written = [
        text
        for name in ON_THE_CLUSTER
        for text in texts([deployments()[name]["parameters"], deployments()[name]["work_pool"]])
        if text.startswith("/opt/maze/")
    ]
    assert {path for path in written if not path.startswith("/opt/maze/.local/")} == set()
