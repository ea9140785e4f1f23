"""Settings refuse what would fail later; every deployment in prefect.yaml fits its flow."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import ValidationError, validate
from prefect.utilities.templating import apply_values

from flows.deployments import UnknownDeployment, deployments, job_env, load_deployment, load_settings
from flows.parts import bounds
from flows.refusals import SettingsRefused
from flows.settings.retrain import RetrainSettings
from rl.grpo.config_table import RunDirs, skyrl_overrides
from rl.grpo.job import CannotStart, check_before_start
from rl.grpo.settings import TrainJob


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (
        ("PROJECT_DIR", str(Path.cwd())),
        ("RAY_JOBS_ADDRESS", "http://127.0.0.1:1"),
        ("MLFLOW_TRACKING_URI", "http://127.0.0.1:2"),
        ("SERVE_DASHBOARD", "http://127.0.0.1:3"),
        ("SERVE_LISTEN", "127.0.0.1:4"),
        ("SERVE_URL", "http://127.0.0.1:4"),
    ):
        monkeypatch.setenv(name, value)


def retrain_settings(**changes: Any) -> RetrainSettings:
    return load_settings("retrain/local", changes)


def job(**changes: Any) -> TrainJob:
    settings = retrain_settings(**changes)
    from rl.maze.run_mazes import prepare_mazes

    sha256 = prepare_mazes(settings.train.data).train_sha256
    return TrainJob(run_name="r", train=settings.train, train_mazes_sha256=sha256)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("name", sorted(deployments()))
def test_every_deployment_fits_its_flow(name: str) -> None:
    flow, parameters = load_deployment(name, {})
    assert f"{flow.name}/" == name[: len(flow.name) + 1]
    assert "{{" not in json.dumps(parameters["platform"])


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize("name", sorted(deployments()))
def test_prefect_s_server_takes_every_deployment_as_it_is_filled_in(name: str) -> None:
    flow, _ = load_deployment(name, {})
    filled = apply_values(copy.deepcopy(deployments()[name]["parameters"]), {})
    schema = parameter_schema(flow).model_dump_for_openapi()
    validate(filled, schema, raise_on_error=True)
    wrong = copy.deepcopy(filled)
    texts = (("tracking", "tracking_uri"), ("plan", "python"), ("hosting", "namespace"))
    stage, key = next(text for text in texts if text[0] in wrong["platform"])
    wrong["platform"][stage][key] = 1
    with pytest.raises(ValidationError, match=r"is not of type 'string'|is not valid under any"):
        validate(wrong, schema, raise_on_error=True)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize(
    ("mazes_per_step", "mini_batch", "reason"),
    [(6, 4, "6 is not a multiple of 4"), (2048, 4, "2048 is greater than the maximum of 1024"), (8, 4, ""), (6, 3, "")],
)
def test_prefect_s_server_refuses_a_knob_that_does_not_fit_the_deployment_s_platform(
    mazes_per_step: int, mini_batch: int, reason: str
) -> None:
    flow, _ = load_deployment("retrain/local", {})
    given = apply_values(copy.deepcopy(deployments()["retrain/local"]["parameters"]), {})
    conditions = bounds(RetrainSettings, given["platform"])
    schema = {**parameter_schema(flow).model_dump_for_openapi(), "allOf": conditions}
    given["knobs"]["mazes_per_step"] = mazes_per_step
    given["platform"]["train"]["grpo"]["mini_batch_mazes"] = mini_batch
    refusals = validate(given, schema)
    assert [(error.json_path, error.message) for error in refusals] == (
        [("$.knobs.mazes_per_step", reason)] if reason else []
    )


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"platform.train.grpo.learning_rat": 1},
            "platform.train.grpo.learning_rat: there is no such setting; was learning_rate meant",
        ),
        ({"platform.train.lora.rank": 64}, "lora.rank is 64, the engine serves at most engine.max_lora_rank 32"),
        ({"platform.train.engine.colocate": True}, "engine.colocate needs sleep mode"),
        ({"platform.train.grpo.mini_batch_mazes": 3}, "mazes_per_step 8 must be a multiple of grpo.mini_batch_mazes 3"),
        ({"platform.train.data.num_train_mazes": 4}, "num_train_mazes 4 is less than one step's 8"),
        ({"platform.cluster.num_gpus": 1}, r"cluster.num_gpus is 1, train needs 2 \(policy 1 \+ engines 1\)"),
        ({"platform.serve.server.max_lora_rank": 16}, "train.lora.rank is 32, serve.server.max_lora_rank 16"),
        ({"platform.serve.server.max_images": 8}, "serve.server.max_images is 8, an episode has up to 15"),
        ({"platform.play.max_reply_tokens": 16}, "play.max_reply_tokens is 16, train.grpo.max_reply_tokens 8"),
        (
            {"platform.serve.server.max_model_len": 1024},
            "serve.server.max_model_len is 1024, train.engine.max_model_len 2048: the endpoint would refuse",
        ),
        (
            {"platform.serve.server.max_model_len": 1024, "platform.train.engine.max_model_len": 1024},
            "engine.max_model_len is 1024, 15 turns of a picture and 8 reply tokens take 1065 and their text besides",
        ),
        (
            {"platform.train.data.max_turns": 30, "platform.serve.server.max_images": 30},
            "30 turns of a picture and 8 reply tokens take",
        ),
        ({"run_name": "Not a name"}, "run_name"),
        ({"platform.image.kind": "podman"}, "image"),
        ({"run_name": "nightly-"}, "'nightly-' .* a letter or digit at both ends, .*Kubernetes' label values"),
        ({"run_name": "n" * 64}, r"\(64 characters\) is no name there"),
        ({"platform.report.profile": "Local"}, "report.profile begins the default name of a run: 'Local-20260101"),
        (
            {"platform.serve.server.base_model_id": "Qwen/Qwen3-VL-8B-Instruct"},
            r"MLflow's registry .*'Qwen-Qwen3-VL-8B-Instruct'",
        ),
        ({"platform.serve.server.base_model_id": "qwen's"}, "MLflow's registry too, .* whose search no quotes"),
        ({"platform.serve.server.base_model_id": "tiny:2"}, "MLflow's registry too, which takes no '/' and no ':'"),
        ({"platform.serve.server.base_model_id": ".."}, "such as 'my-model'"),
        ({"platform.serve.server.adapters_uri": "s3://Models/adapters"}, "a bucket has 3 to 63 lowercase letters"),
        ({"platform.serve.server.adapters_uri": "s3://models/a//b"}, "no part is empty"),
        ({"platform.serve.server.adapters_uri": "s3://models/../b"}, "no part is empty"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_starts(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsRefused, match=message):
        retrain_settings(**changes)


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("train_cluster", "3d-maze", "a DNS-1035 label of at most 53 characters.*KubeRay, ValidateRayClusterMetadata"),
        ("train_cluster", "c" * 54, r"\(54 characters\)"),
        ("serve_name", "llm-", "a DNS-1035 label of at most 47 characters"),
        ("serve_name", "s" * 48, r"\(48 characters\)"),
        ("namespace", "Maze", "a DNS-1123 label"),
        ("service_account", "maze_ray", r"a DNS-1123 subdomain: .* \(Kubernetes, service accounts"),
        ("shared_claim", "fsx shared", "a DNS-1123 subdomain"),
        ("hyperpod_cluster", "maze_1", r"\(SageMaker, CreateCluster\)"),
        ("eks_cluster", "maze/eks", r"\(EKS, CreateCluster\)"),
    ],
)  # fmt: skip
def test_names_that_aws_or_kubernetes_would_refuse_are_refused_with_their_rule(
    name: str, value: str, rule: str
) -> None:
    with pytest.raises(SettingsRefused, match=rf"hosting.*{name}: .*{rule}"):
        load_deployment("retrain/hyperpod", {f"platform.hosting.{name}": value})


@pytest.mark.usefixtures("addresses")
def test_jobs_and_pods_of_a_run_on_hyperpod_take_the_same_way_to_the_cluster() -> None:
    hosting = load_settings("retrain/hyperpod", {}).hosting
    assert job_env("retrain/hyperpod") == {"KUBECONFIG": hosting.kubeconfig}
    assert job_env("retrain/local") == {}


@pytest.mark.usefixtures("addresses")
def test_pods_without_an_image_are_refused() -> None:
    with pytest.raises(SettingsRefused, match=r"which image the pods take for train, serve: build it .* or pin it"):
        load_deployment("retrain/hyperpod", {"platform.image": {"kind": "installed", "locks": {}}})


@pytest.mark.usefixtures("addresses")
def test_a_deployment_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(UnknownDeployment, match=r"no deployment retrain/moon; it has .*retrain/local"):
        load_deployment("retrain/moon", {})


@pytest.mark.usefixtures("addresses")
def test_settings_survive_the_command_line() -> None:
    sent = job()
    assert TrainJob.model_validate_json(sent.model_dump_json()) == sent


@pytest.mark.usefixtures("addresses")
def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "processor_config.json").write_text("{}")
    wanted = r"has no config.json, model.safetensors; point train.model_path at a model with its processor"
    with pytest.raises(CannotStart, match=wanted):
        check_before_start(job(**{"platform.train.model_path": str(tmp_path)}), RunDirs(str(tmp_path), "r"))


@pytest.mark.usefixtures("addresses")
def test_a_full_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"GB free, train.min_free_disk_gb wants 1000000.0"):
        check_before_start(job(**{"platform.train.min_free_disk_gb": 1e6}), RunDirs(str(tmp_path), "r"))


@pytest.mark.usefixtures("addresses")
def test_an_image_that_draws_other_mazes_than_the_orchestrator_is_refused(tmp_path: Path) -> None:
    other = job().model_copy(update={"train_mazes_sha256": "0" * 64})
    with pytest.raises(CannotStart, match="run the same version of the project on both sides"):
        check_before_start(other, RunDirs(str(tmp_path), "r"))


@pytest.mark.usefixtures("addresses")
def test_everything_of_a_run_lies_in_its_own_folder(tmp_path: Path) -> None:
    dirs = RunDirs(str(tmp_path), "r")
    overrides = skyrl_overrides(job(), dirs, None)
    paths = [value for key, value in overrides.items() if key.endswith(("_path", "log_path")) and value]
    paths = [path for path in paths if not path.endswith("tiny-qwen3-vl")]
    assert len(paths) == 4
    assert all(path.startswith(str(dirs.root)) for path in paths)
    assert json.dumps(overrides)


@pytest.mark.usefixtures("addresses")
def test_in_mlflow_a_knob_is_one_parameter_and_everything_else_stands_by_its_path() -> None:
    params = retrain_settings(learning_rate=5e-4, note="n").params("r-1")
    assert (params["learning_rate"], params["note"], params["run_name"]) == (5e-4, "n", "r-1")
    assert params["train.lora.rank"] == params["lora_rank"]
    assert not set(RetrainSettings.knob_paths.values()) & params.keys() - {"run_name"}
