"""The plan of the AWS run: sizes and costs by hand, manifests against KubeRay's rules, refusals with their remedies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks.plan.write
from flows.deployments import load_settings
from flows.refusals import SettingsRefused
from flows.settings.plan import PlanFlowSettings
from tasks.cluster.manifests import as_yaml, ray_cluster, ray_service, service_account
from tasks.plan.sizing import PlanRefused, checks, costs_usd, durations_h, lora_params, require, sizes
from tasks.plan.write import skyrl_config
from tasks.records import MazesRef
from tests.recording import recording

IMAGE = "registry/maze@sha256:" + "a" * 64
MAZES = MazesRef(
    height=9,
    width=9,
    eval_sha256="e" * 64,
    num_eval_mazes=64,
    ceiling=48,
    train_sha256="t" * 64,
    num_train_mazes=4096,
    train_ceiling=3000,
)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> PlanFlowSettings:
    return planned(monkeypatch, {})


def planned(
    monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Any], deployment: str = "plan/hyperpod"
) -> PlanFlowSettings:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    return load_settings(deployment, dict(changes))


def test_sizes_are_those_that_pencil_and_paper_give(settings: PlanFlowSettings) -> None:
    model = settings.plan.model
    # Per layer: q and o 4096 to 4096, k and v 4096 to 1024, gate, up and down between 4096 and 12288.
    assert lora_params(model, 32) == 36 * 32 * (2 * 8192 + 2 * 5120 + 3 * 16384) == 87_293_952
    size = sizes(settings.train, model)
    assert size.adapter_bytes == 4 * 87_293_952
    assert size.checkpoint_bytes == 4 * 8_770_000_000 + 12 * 87_293_952
    # 4096 mazes in steps of 30: an epoch ends at step 136, and SkyRL saves there too.
    assert size.save_steps == (20, 40, 60, 80, 100, 120, 136, 140, 160)
    assert size.kept_bytes == 4 * size.checkpoint_bytes + 9 * size.adapter_bytes + 2 * 8_770_000_000


def test_keeping_every_checkpoint_counts_every_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = planned(monkeypatch, {"platform.train.max_checkpoints_to_keep": -1})
    size = sizes(settings.train, settings.plan.model)
    assert size.kept_bytes == 9 * (size.checkpoint_bytes + size.adapter_bytes) + 2 * 8_770_000_000


def test_hours_and_costs_follow_from_expectations_and_prices(settings: PlanFlowSettings) -> None:
    hours = durations_h(settings.train, settings.plan)
    assert hours == {
        "start": 0.25,
        "steps": 160 * 240 / 3600,
        "evaluations": 17 * 120 / 3600,
        "publish, serve, prove, judge": 0.5,
    }
    costs = costs_usd(10.0, settings.planned.hosting, settings.plan)
    assert costs == pytest.approx(
        {
            "workers": 10 * 3 * 10.36,
            "head": 55.3,
            "serving beside it": 10 * 4.66,
            "shared file system": 10 / 730 * 1200 * 0.145,
        }
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"platform.hosting.shared_size_gb": 100}, "165 GB kept, 100 GB there; keep fewer checkpoints"),
        ({"platform.train.shared_dir": "/tmp/runs"}, "put train.shared_dir and train.model_path under /shared"),
        (
            {"platform.hosting.workers.count": 2, "platform.hosting.workers.memory_gib": 16},
            r"2 x 2 GPUs, 6 wanted(.|\n)*33 GiB for the state dict on rank 0, 16 GiB in the pod",
        ),
    ],
)  # fmt: skip
def test_a_run_that_cannot_work_is_refused_with_every_reason(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    settings = planned(monkeypatch, changes)
    found = checks(settings.train, settings.planned.hosting, settings.plan, skyrl="")
    with pytest.raises(PlanRefused, match=message):
        require(found)


def test_what_skyrl_says_against_the_settings_is_handed_on(settings: PlanFlowSettings, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'SkyRL refuses these settings: 7 is odd' >&2\nexit 1\n")
    python.chmod(0o755)
    job = tasks.plan.write.TrainJob(run_name="r", train=settings.train, train_mazes_sha256="t")
    said = skyrl_config(job, str(python))
    assert said == ("", "SkyRL refuses these settings: 7 is odd")
    assert "there is no Python with SkyRL at /nowhere; install it" in skyrl_config(job, "/nowhere")[1]
    with pytest.raises(PlanRefused, match="SkyRL takes the settings: SkyRL refuses these settings: 7 is odd"):
        require(checks(settings.train, settings.planned.hosting, settings.plan, said[1]))


def pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [spec["headGroupSpec"]["template"]["spec"], *(w["template"]["spec"] for w in spec["workerGroupSpecs"])]


def cluster_specs(settings: PlanFlowSettings) -> list[dict[str, Any]]:
    service = ray_service(settings.planned.hosting, settings.serve.server, IMAGE)
    return [ray_cluster(settings.planned.hosting, "r", IMAGE)["spec"], service["spec"]["rayClusterConfig"]]


def test_ray_clusters_keep_the_rules_of_kuberay_and_hyperpod(settings: PlanFlowSettings) -> None:
    for spec in cluster_specs(settings):
        # Required by the CRD; texts, not numbers, in rayStartParams.
        assert spec["headGroupSpec"]["rayStartParams"] == {"dashboard-host": "0.0.0.0", "num-gpus": "0"}
        for group in spec["workerGroupSpecs"]:
            assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] >= 1
            assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for pod in pods(spec):
            (container,) = pod["containers"]
            assert "@sha256:" in container["image"]
            assert pod["serviceAccountName"] == "maze-ray"
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts == {"shared": "/shared", "shm": "/dev/shm"}
            assert {volume["name"] for volume in pod["volumes"]} == set(mounts)
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert pod["nodeSelector"]["sagemaker.amazonaws.com/node-health-status"] == "Schedulable"


def test_only_workers_ask_for_gpus_and_tolerate_their_nodes(settings: PlanFlowSettings) -> None:
    asked = [
        [pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu") for pod in pods(spec)]
        for spec in cluster_specs(settings)
    ]
    assert asked == [[None, "2"], [None, "1"]]
    assert [["tolerations" in pod for pod in pods(spec)] for spec in cluster_specs(settings)] == [[False, True]] * 2


def test_the_endpoint_operator_is_told_who_may_submit(settings: PlanFlowSettings) -> None:
    assert ray_cluster(settings.planned.hosting, "r", IMAGE)["metadata"]["annotations"] == {
        "access.sagemaker.amazonaws.com/enabled": "true",
        "access.sagemaker.amazonaws.com/access-strategy": "ray-access-strategy-private",
    }


def test_the_service_carries_the_application_and_never_doubles_its_gpus(settings: PlanFlowSettings) -> None:
    service = ray_service(settings.planned.hosting, settings.serve.server, IMAGE)
    application = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]
    assert application["import_path"] == "serving.front:build_app"
    (model,) = application["args"]["llm_configs"]
    assert model["model_loading_config"]["model_id"] == "visgym-qwen3vl"
    assert "accelerator_config" not in model
    assert "accelerator_type" not in model
    assert service["spec"]["upgradeStrategy"] == {"type": "None"}


def test_manifests_read_as_they_were_written(settings: PlanFlowSettings) -> None:
    service = ray_service(settings.planned.hosting, settings.serve.server, IMAGE)
    text = as_yaml(service)
    assert yaml.safe_load(text) == service
    assert "serveConfigV2: |\n    http_options:" in text
    assert service_account(settings.planned.hosting)["metadata"] == {"name": "maze-ray", "namespace": "maze"}


def test_an_image_by_tag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    image = "public.ecr.aws/deep-learning-containers/ray:serve-llm-cuda"
    with pytest.raises(SettingsRefused, match="serve_image"):
        planned(monkeypatch, {"platform.hosting.serve_image": image})


def test_the_written_plan_is_what_the_flow_returns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tasks.plan.write, "skyrl_config", lambda job, python: ("trainer: {}\n", ""))
    settings = planned(monkeypatch, {"platform.plan.output_dir": str(tmp_path)})
    context, events = recording("hyperpod")
    made = tasks.plan.write.write_plan.fn(context, settings.plan, settings.planned, MAZES)
    assert events == ["markdown plan"]
    assert json.loads((tmp_path / "plan.json").read_text()) == made
    assert {path.name for path in tmp_path.iterdir()} == {
        "plan.json", "plan.md", "skyrl.yaml", "service-account.yaml", "ray-cluster.yaml", "ray-service.yaml"
    }  # fmt: skip
    assert made["expected_gpu_h"] == pytest.approx(6 * made["expected_h"]["total"], abs=0.1)
    text = tasks.plan.write.as_markdown(made)
    assert "At most 48 of the 64 evaluation mazes" in text
    assert "RayCluster maze/skyrl-visgym: 1 x ml.r5d.16xlarge, 3 x ml.g7e.12xlarge (6 GPUs)" in text
    assert text.count("not pinned yet") == 2
    cluster = yaml.safe_load((tmp_path / "ray-cluster.yaml").read_text())
    assert pods(cluster["spec"])[0]["containers"][0]["image"].endswith("/maze-train:built-by-the-run")


def test_the_plan_places_every_pod_and_says_what_serving_costs_a_week(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tasks.plan.write, "skyrl_config", lambda job, python: ("trainer: {}\n", ""))
    texts: dict[str, str] = {}
    for kind, changes in (("own", {}), ("suspended", {"platform.hosting.serving": {"kind": "suspended"}})):
        settings = planned(monkeypatch, {"platform.plan.output_dir": str(tmp_path), **changes})
        context, _ = recording("hyperpod")
        made = tasks.plan.write.write_plan.fn(context, settings.plan, settings.planned, MAZES)
        texts[kind] = tasks.plan.write.as_markdown(made)
        hosting = settings.planned.hosting
        pods = 1 + hosting.workers.count + 2
        assert sum(map(len, made["placement"].values())) == pods
        week = 168 * sum(group.usd_per_h for group in hosting.serving_groups)
        assert made["serving"]["usd_per_week"] == pytest.approx(week, abs=0.01)
        assert f"{week:.0f} USD a week until somebody removes it" in texts[kind]
    assert "it answers while a run trains" in texts["own"]
    assert "its endpoint is away while a run trains" in texts["suspended"]


def test_a_pod_that_no_machine_can_take_is_named_in_the_plan_s_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = planned(monkeypatch, {"platform.hosting.workers.num_cpus": 60})
    found = checks(settings.planned.train, settings.planned.hosting, settings.plan, skyrl="")
    failed = [check for check in found if not check.holds]
    assert any("has no place" in check.found and "CPUs free" in check.found for check in failed)


def test_a_cluster_with_kuberay_is_planned_pod_by_pod_and_needs_no_price(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tasks.plan.write, "skyrl_config", lambda job, python: ("trainer: {}\n", ""))
    settings = planned(monkeypatch, {"platform.plan.output_dir": str(tmp_path)}, "plan/kuberay")
    context, _ = recording("kuberay")
    made = tasks.plan.write.write_plan.fn(context, settings.plan, settings.planned, MAZES)
    assert all(check["holds"] for check in made["checks"])
    (placed,) = made["placement"].values()
    assert [one["machine"] for one in placed] == ["cpu-1", "serve-gpu-1", "cpu-1", "gpu-1", "gpu-2", "gpu-3"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "plan.json", "plan.md", "skyrl.yaml", "ray-cluster.yaml", "ray-service.yaml"
    }  # fmt: skip
    text = (tmp_path / "plan.md").read_text()
    assert "on machines of its own, 1 x cpu and 1 x serve-gpu: there until somebody removes it" in text
    assert text.count("not pinned yet") == 2
    assert "Costs are not reckoned: no price is set" in text
