"""Readiness without a run: clusters kept, made, missing, or led to by nothing; always lines, never a traceback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

import flows.cli.doctor
from flows.cli.doctor import examine
from tasks.checks import ToCheck, Unready, start_checks
from tasks.errors import ClusterUnreachable
from tasks.readiness import doctor
from tasks.records import Check
from tests.unit.cluster.account import IMAGES, settings_of
from tests.unit.cluster.kube_api import READY, FakeKubernetes, kubernetes_api
from tests.unit.cluster.test_any_kubernetes import machine

PINNED = "images that are pinned are pinned to something"
GPUS = "the cluster that trains has its GPUs free"


class Terminal:
    """A console's lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.has_a_check = Event()

    def print(self, text: str, **how: Any) -> None:
        self.lines.append(text)
        if text.startswith("ok "):
            self.has_a_check.set()

    @property
    def said(self) -> dict[str, str]:
        """Check -> what was said, of the lines that are checks."""
        checks = [line for line in self.lines if line.startswith(("ok ", "FAILS "))]
        return {line[7:].partition(": ")[0]: line[:7].strip() + " " + line.partition(": ")[2] for line in checks}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FakeKubernetes, str]]:
    """A cluster with its machines; servers and Ray in few words."""
    monkeypatch.setattr(doctor, "server_checks", lambda *asked: [ToCheck("MLflow answers", lambda: "yes", "start it")])
    monkeypatch.setattr(doctor, "job_check", lambda *asked: ToCheck("no other job", lambda: "none", "wait"))
    monkeypatch.setattr(doctor, "cluster_resources", lambda address: {"gpus_free": 6.0, "gpus_total": 6.0})
    monkeypatch.setattr(doctor, "asked_nodes", lambda *asked: [Check(name="a node", holds=True, found="fine")])
    with kubernetes_api(tmp_path) as (kubernetes, kubeconfig):
        kubernetes.nodes = [machine("cpu", 0, 30, 120, 0), machine("serve-gpu", 0, 30, 240, 2)]
        kubernetes.nodes += [machine("gpu", number, 30, 240, 2) for number in range(3)]
        yield kubernetes, kubeconfig


def looked(
    monkeypatch: pytest.MonkeyPatch, kubeconfig: str, terminal: Terminal | None = None, **pinned: str
) -> tuple[int, Terminal]:
    settings = settings_of("retrain/kuberay")
    hosting = settings.hosting.model_copy(
        update={"kubeconfig": kubeconfig, "train_image": "", "serve_image": "", **pinned}
    )
    given = settings.model_copy(update={"hosting": hosting})
    monkeypatch.setattr(flows.cli.doctor, "prepared", lambda *asked: (None, {"platform": {}, "knobs": None}))
    monkeypatch.setattr(flows.cli.doctor.RetrainSettings, "of", lambda *asked: given)
    terminal = terminal or Terminal()
    return examine(terminal, "kuberay"), terminal  # type: ignore[arg-type]


def test_before_a_run_the_machines_are_asked_and_the_nodes_left_to_it(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, terminal = looked(monkeypatch, site[1])
    assert code == 0, terminal.lines
    assert list(terminal.said) == [
        "MLflow answers",
        "whoever keeps the clusters answers",
        "Kubernetes lets this identity do what the run will ask",
        "every pod that trains has a place",
        PINNED,
        "every pod has a place, in training and in serving",
        "the nodes",
    ]
    assert terminal.said["the nodes"] == "ok not asked: the run makes them"
    assert terminal.lines[-1] == "all 7 checks hold"
    assert site[0].changes == []


def test_what_does_not_hold_is_one_line_with_its_remedy_and_the_exit_code_is_1(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site[0].denied = {"create rayclusters"}
    code, terminal = looked(monkeypatch, site[1], serve_image=f"registry/serve@sha256:{'0' * 64}")
    assert code == 1
    assert terminal.said[PINNED].startswith("FAILS hosting.serve_image still has zeros for a digest; build and push")
    said = terminal.said["Kubernetes lets this identity do what the run will ask"]
    assert (
        said
        == "FAILS it may not create rayclusters in maze; `kubectl apply -f docker/role-kuberay.yaml` (docs/cluster.md)"
    )
    assert terminal.lines[-1] == "2 of 7 checks do not hold"


def test_a_cluster_that_is_there_is_asked_for_its_gpus_jobs_and_nodes(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.cluster.kuberay import KubeRay
    from tasks.cluster.manifests import ray_cluster

    KubeRay(site[1]).apply(ray_cluster(settings_of("retrain/kuberay").hosting, "by-hand", IMAGES["train"].uri))
    site[0].script = [READY]
    code, terminal = looked(monkeypatch, site[1])
    assert code == 0, terminal.lines
    assert terminal.said["the RayCluster is ready"] == "ok 3 workers"
    assert terminal.said[GPUS] == "ok 6 of 6 GPUs are free, 6 are wanted"
    assert terminal.said["a node"] == "ok fine"


def test_no_way_to_the_cluster_and_no_answer_are_lines(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, terminal = looked(monkeypatch, "/nowhere/kubeconfig")
    assert code == 1
    assert "/nowhere/kubeconfig gives no connection" in terminal.said["whoever keeps the clusters answers"]
    assert terminal.said["the nodes"].startswith("FAILS not asked: whoever keeps the clusters gives no answer; ")
    site[0].refusal = (401, "Unauthorized", "who are you")
    code, terminal = looked(monkeypatch, site[1])
    assert code == 1
    assert "answered 401" in terminal.said["whoever keeps the clusters answers"]


def test_a_ray_cluster_that_is_kept_and_does_not_answer_is_a_line_and_its_nodes_are_not_asked(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(address: str) -> Any:
        raise ClusterUnreachable(f"nobody answers at {address}")

    kept = SimpleNamespace(is_there=lambda: True, checks=lambda *asked: [])
    monkeypatch.setattr(doctor, "hosting_of", lambda settings: kept)
    monkeypatch.setattr(doctor, "cluster_resources", nobody)
    code, terminal = looked(monkeypatch, site[1])
    assert code == 1
    assert terminal.said[GPUS].startswith("FAILS nobody answers at http://skyrl-visgym-head-svc.maze")
    assert terminal.said["the nodes"].startswith("FAILS not asked while no job can run there")


def test_a_line_is_there_as_soon_as_it_is_known_while_others_are_still_asked(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()

    def slow() -> str:
        if not terminal.has_a_check.wait(10):
            raise Unready("nobody was told of the first check meanwhile")
        return "yes"

    asked = [ToCheck("MLflow answers", lambda: "yes", "start it"), ToCheck("the store answers", slow, "start it")]
    monkeypatch.setattr(doctor, "server_checks", lambda *of: asked)
    code, _ = looked(monkeypatch, site[1], terminal)
    assert terminal.said["the store answers"] == "ok yes"
    assert code == 0


def test_a_server_that_takes_a_connection_and_never_answers_is_a_line_after_the_limit(
    site: tuple[FakeKubernetes, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = f"http://127.0.0.1:{hanging.getsockname()[1]}/health"
        asked = [ToCheck("the store answers", lambda: httpx.get(address, timeout=None).text, "start it")]
        monkeypatch.setattr(doctor, "server_checks", lambda *of: asked)
        monkeypatch.setattr(doctor, "start_checks", lambda wanted, timeout_s: start_checks(wanted, 1))
        code, terminal = looked(monkeypatch, site[1])
    assert terminal.said["the store answers"] == "FAILS no answer within 1 s; start it"
    assert (code, terminal.lines[-1]) == (1, "1 of 7 checks do not hold")
