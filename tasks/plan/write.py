"""Stage: the plan of a run on the cluster, written down for whoever approves it. Creates nothing outside its folder."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl.grpo.settings import TrainJob
from tasks.cluster.manifests import Manifest, as_yaml, ray_cluster, ray_service, service_account
from tasks.cluster.ray_settings import OwnMachines, RayOnKubernetes
from tasks.cluster.settings import HyperPodSettings, MadeClusters
from tasks.image.settings import UNPINNED, BuiltImages, ImageSettings
from tasks.plan.settings import PlannedRun, PlanSettings
from tasks.plan.sizing import checks, costs_usd, durations_h, placements, serving_usd_per_h, sizes
from tasks.records import MazesRef
from tasks.run import RunContext
from tasks.stage import stage

HOURS_PER_WEEK = 7 * 24


@stage
def write_plan(context: RunContext, plan: PlanSettings, planned: PlannedRun, mazes: MazesRef) -> dict[str, Any]:
    """Write plan.json, plan.md, skyrl.yaml and the manifests; returns the plan, whatever its checks say."""
    run_name = context.run_name
    job = TrainJob(run_name=run_name, train=planned.train, train_mazes_sha256=mazes.train_sha256)
    config, objections = skyrl_config(job, plan.python)
    made = {
        "run_name": run_name,
        "stages": [{"stage": name, "creates": things} for name, things in creates(planned, run_name).items()],
        "eval_set": {"sha256": mazes.eval_sha256, "num_mazes": mazes.num_eval_mazes, "ceiling": mazes.ceiling},
        **figures(planned, plan),
        "checks": [check.model_dump() for check in checks(planned.train, planned.hosting, plan, objections)],
    }
    folder = Path(plan.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(made, indent=1) + "\n")
    (folder / "plan.md").write_text(as_markdown(made))
    (folder / "skyrl.yaml").write_text(config)
    for name, manifest in manifests(planned, run_name).items():
        (folder / f"{name}.yaml").write_text(as_yaml(manifest))
    context.page.markdown("plan", as_markdown(made), "What the run would do")
    return made


def manifests(planned: PlannedRun, run_name: str) -> dict[str, Manifest]:
    """File name -> Kubernetes document; images that the run builds have no digest yet."""
    hosting, image = planned.hosting, planned.image

    def wanted(name: str, pinned: str) -> str:
        built = image.images.get(name) if isinstance(image, BuiltImages) else None
        if built is None or not isinstance(image, BuiltImages):
            return pinned
        return f"{image.registry.partition('://')[2]}/{built.repository}:built-by-the-run"

    account = {"service-account": service_account(hosting)} if isinstance(hosting, HyperPodSettings) else {}
    return {
        **account,
        "ray-cluster": ray_cluster(hosting, run_name, wanted("train", hosting.train_image)),
        "ray-service": ray_service(hosting, planned.server, wanted("serve", hosting.serve_image)),
    }


def image_lines(hosting: RayOnKubernetes, image: ImageSettings) -> list[str]:
    """What is built, or which images are taken as they are."""
    if not isinstance(image, BuiltImages):
        return [
            f"{name} image as it is: {uri}" + (" - **not pinned yet**" if uri.endswith(UNPINNED) else "")
            for name, uri in _pinned(hosting).items()
        ]
    lines = []
    for name, spec in image.images.items():
        unknown = [arg for arg, value in spec.build_args.items() if value.endswith(UNPINNED)]
        lines.append(
            f"{image.registry}/{spec.repository}, target {spec.target}, by {image.kind}, unless the registry has it"
            + (f" - **{name}'s {', '.join(unknown)} not pinned yet**" if unknown else "")
        )
    return lines


def _pinned(hosting: RayOnKubernetes) -> dict[str, str]:
    return {"train": hosting.train_image, "serve": hosting.serve_image}


def skyrl_config(job: TrainJob, python: str) -> tuple[str, str]:
    """SkyRL's configuration of this job as YAML, and what it says against it; one of the two is empty."""
    command = [python, "-m", "rl.grpo.resolve", job.model_dump_json()]
    if shutil.which(python) is None:
        return "", f"there is no Python with SkyRL at {python}; install it (make setup) or correct plan.python"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout, ""
    return "", (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]


def creates(planned: PlannedRun, run_name: str) -> dict[str, list[str]]:
    """Stage -> what it would create."""
    hosting, train, server = planned.hosting, planned.train, planned.server
    head, workers = hosting.head, hosting.workers
    runs = f"{train.shared_dir}/runs/{run_name}"
    last = train.grpo.max_steps
    return {
        "image": image_lines(hosting, planned.image),
        "cluster": [
            *account_lines(planned.hosting),
            f"RayCluster {hosting.namespace}/{hosting.train_cluster}: {head.count} x {head.machine_type}, "
            f"{workers.count} x {workers.machine_type} ({workers.count * workers.num_gpus} GPUs)",
        ],
        "track": [f"MLflow runs {run_name} and {run_name}-train in experiment {planned.experiment}"],
        "train": [
            f"Ray job {run_name}-train-1: {last} GRPO steps of {train.grpo.mazes_per_step} mazes x "
            f"{train.grpo.rollouts_per_maze} rollouts",
            f"{runs}/checkpoints, {runs}/exports, {runs}/logs",
        ],
        "publish": [f"{server.adapters_uri}/{run_name}-step-<best>/"],
        "serve": [
            f"RayService {hosting.namespace}/{hosting.serve_name}: application {server.app_name} with "
            f"{server.base_model_id} on {hosting.serve_gpus} GPU",
            serving_line(hosting),
        ],
        "promote": [f"alias champion of the registered model {server.base_model_id}-adapters, if proven and better"],
        "clean up": [f"RayCluster {hosting.namespace}/{hosting.train_cluster} goes, whatever happened"],
    }


def account_lines(hosting: MadeClusters) -> list[str]:
    """What is made so that pods reach the object store."""
    if not isinstance(hosting, HyperPodSettings):
        return []
    return [f"ServiceAccount {hosting.namespace}/{hosting.service_account}, by Pod Identity with {hosting.role_arn}"]


def serving_line(hosting: RayOnKubernetes) -> str:
    """What serving costs a week, and whether it answers while a run trains."""
    machines = " and ".join(f"{group.count} x {group.machine_type}" for group in hosting.serving_groups)
    usd_per_week = serving_usd_per_h(hosting) * HOURS_PER_WEEK
    price = f"{usd_per_week:.0f} USD a week" if usd_per_week else "there"
    week = f"{price} until somebody removes it"
    if isinstance(hosting.serving, OwnMachines):
        return f"on machines of its own, {machines}: {week}; it answers while a run trains"
    return f"on the machines that train, {machines}: {week}; **its endpoint is away while a run trains**"


def figures(planned: PlannedRun, plan: PlanSettings) -> dict[str, Any]:
    """Sizes, hours and costs."""
    hosting, train = planned.hosting, planned.train
    size, hours = sizes(train, plan.model), durations_h(train, plan)
    total_h = sum(hours.values())
    costs = costs_usd(total_h, hosting, plan)
    is_away = not isinstance(hosting.serving, OwnMachines)
    return {
        "placement": {
            title: [
                {"pod": one.pod.name, "asks": str(one.pod.asks), "machine": one.machine or one.why} for one in placed
            ]
            for title, placed in placements(hosting).items()
        },
        "serving": {
            "kind": hosting.serving.kind,
            "usd_per_week": round(serving_usd_per_h(hosting) * HOURS_PER_WEEK, 2),
            "expected_outage_h": round(total_h, 2) if is_away else 0.0,
        },
        "sizes_gb": {
            "adapter": round(size.adapter_bytes / 1e9, 3),
            "checkpoint": round(size.checkpoint_bytes / 1e9, 1),
            "kept on the shared file system": round(size.kept_bytes / 1e9, 1),
        },
        "save_steps": list(size.save_steps),
        "expected_h": {name: round(value, 2) for name, value in {**hours, "total": total_h}.items()},
        "expected_gpu_h": round(total_h * hosting.workers.count * hosting.workers.num_gpus, 1),
        "expected_usd": {name: round(value, 2) for name, value in {**costs, "total": sum(costs.values())}.items()},
    }


def as_markdown(made: Mapping[str, Any]) -> str:
    """The plan for the terminal and the Prefect page."""

    def table(head: tuple[str, str], rows: Mapping[str, Any]) -> str:
        lines = [f"| {name} | {value} |" for name, value in rows.items()]
        return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---:|", *lines])

    marks = {True: "ok", False: "**FAILS**"}
    stages_part = "\n".join(f"- **{entry['stage']}**: " + "; ".join(entry["creates"]) for entry in made["stages"])
    checks_part = "\n".join(
        f"- {marks[check['holds']]} - {check['name']}: {check['found']}"
        + ("" if check["holds"] else f"; {check['remedy']}")
        for check in made["checks"]
    )
    eval_set = made["eval_set"]
    rows = [
        f"| {title} | {one['pod']} | {one['asks']} | {one['machine']} |"
        for title, placed in made["placement"].items()
        for one in placed
    ]
    places = "\n".join(["| when | pod | asks for | machine |", "|---|---|---|---|", *rows])
    outage_h = made["serving"]["expected_outage_h"]
    outage = f"**The endpoint is away for about {outage_h:g} h of every run.**\n\n" if outage_h else ""
    costs = table(("what", "expected USD"), made["expected_usd"])
    if not made["expected_usd"]["total"]:
        costs = "Costs are not reckoned: no price is set (`usd_per_h`)."
    return (
        f"# Plan of {made['run_name']}\n\n{stages_part}\n\n"
        f"At most {eval_set['ceiling']} of the {eval_set['num_mazes']} evaluation mazes can be solved within the turn "
        f"limit.\nCheckpoints and exports at steps {', '.join(map(str, made['save_steps']))}.\n\n"
        f"{table(('part', 'expected hours'), made['expected_h'])}\n\n"
        f"{places}\n\n{outage}"
        f"{made['expected_gpu_h']:g} GPU hours.\n\n{costs}\n\n"
        f"{table(('what', 'GB'), made['sizes_gb'])}\n\n{checks_part}\n"
    )
