"""Ray job entry point before training: is everything there on the nodes? (``python -m rl.readiness.job JSON``)

    Ray's view -> looks on every node and in this process -> verdict by verdict -> all ranks add up
    meanwhile: the base model is loaded by a process of its own

Every check leaves one ``checked`` event with its remedy; all run, whatever the others find. What they mean for the run
is the orchestrator's to say: this job succeeds when all have been told.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rl.events import Checked, EventLog, Fault
from rl.output import clean_output
from rl.readiness import checks as ready_checks
from rl.readiness import node
from rl.readiness.checks import GpuNode, Reports, Unready
from rl.readiness.model import load_apart
from rl.readiness.node import Seen
from rl.readiness.settings import CHECKS, CheckKey, NodeWants, ReadyJob

LOOKS: tuple[CheckKey, ...] = ("versions", "gpus", "shared", "model", "mlflow")


class Verdicts:
    """Tells each check once."""

    def __init__(self, log: EventLog, skip: tuple[CheckKey, ...] = ()) -> None:
        self._log, self._skip = log, skip
        self._told: set[CheckKey] = set()
        self._lock = threading.Lock()

    def tell(self, key: CheckKey, look: Callable[[], str]) -> None:
        """What ``look`` found, or why it does not hold."""
        if key in self._skip:
            return self._emit(key, True, "skipped (readiness.nodes.skip)")
        try:
            self._emit(key, True, look())
        except Unready as error:
            self._emit(key, False, str(error))
        except Exception as error:
            self._emit(key, False, f"{type(error).__name__}: {error}")

    def give_up(self, timeout_s: float) -> None:
        """Everything that nothing was told of does not hold."""
        for key in CHECKS:
            self._emit(key, False, f"not reached: the checks together took longer than {timeout_s:g} s")

    def _emit(self, key: CheckKey, holds: bool, found: str) -> None:
        with self._lock:
            if key not in self._told:
                self._told.add(key)
                name, remedy = CHECKS[key]
                self._log.emit(Checked(name=name, holds=holds, found=found, remedy="" if holds else remedy))


def run(job: ReadyJob, verdicts: Verdicts) -> None:
    """All checks, told as they come."""
    import ray

    from rl.readiness.canary import all_reduce
    from rl.readiness.cluster import has_gpu_model, look_everywhere, settled

    checks = job.checks
    loading = load_meanwhile(job)
    ray.init(log_to_driver=False)
    nodes = settled(lambda nodes: sum(node.num_free for node in nodes) >= job.num_gpus)
    verdicts.tell(
        "resources",
        lambda: ready_checks.enough_gpus(
            nodes, job.num_gpus, job.num_policy_nodes, job.num_gpus_per_node, has_gpu_model(), job.device
        ),
    )
    wants, made = open_probe(job)
    # This process was given no GPU, wherever Ray has put it.
    keys = tuple(key for key in wants.keys if key != "gpus")
    own = node.look(wants.model_copy(update={"keys": keys}), "own")
    reports = {"driver": {**own, **made}, **look_everywhere(nodes, wants)}
    tell_reports(job, verdicts, reports, nodes, wants)
    verdicts.tell(
        "all_reduce", lambda: all_reduce(nodes, job.num_gpus, job.device, job.env, checks.all_reduce_timeout_s)
    )
    verdicts.tell("model", lambda: f"{loading.result()}, {ready_checks.same_model(reports)}")


def load_meanwhile(job: ReadyJob) -> Future[str]:
    """The base model's check, under way."""
    if "model" in job.checks.skip:
        return Future()
    return ThreadPoolExecutor(1).submit(load_apart, job.model_path, job.checks.model_timeout_s, job.env)


def tell_reports(job: ReadyJob, verdicts: Verdicts, reports: Reports, nodes: list[GpuNode], wants: NodeWants) -> None:
    """The verdicts on what the places saw."""
    limit_s = job.checks.look_timeout_s
    unseen = node.seen_within(limit_s, {"files": lambda: close_probe(wants, reports, nodes)})["files"]
    space = node.seen_within(limit_s, {"space": lambda: shutil.disk_usage(job.shared_dir).free / 1e9})["space"]
    is_cuda = job.device == "cuda"
    verdicts.tell("versions", lambda: ready_checks.same_versions(reports))
    verdicts.tell(
        "gpus",
        lambda: (
            ready_checks.alike_gpus(reports, job.checks.min_gpu_memory_gb)
            if is_cuda
            else "not asked: engine.device is cpu"
        ),
    )
    verdicts.tell("shared", lambda: ready_checks.one_file_system(reports, unseen))
    verdicts.tell("space", lambda: ready_checks.enough_space(space, job.shared_dir, job.min_free_disk_gb))
    verdicts.tell("mlflow", lambda: ready_checks.answers_everywhere(reports))


def open_probe(job: ReadyJob) -> tuple[NodeWants, dict[str, Seen]]:
    """Make the folder through which the places exchange files; what goes wrong is the driver's finding."""
    folder, token = Path(job.shared_dir) / f".ready-{job.run_name}", secrets.token_hex(8)
    not_asked = {*job.checks.skip, *(["gpus"] if job.device == "cpu" else [])}
    keys: tuple[CheckKey, ...] = tuple(key for key in LOOKS if key not in not_asked)
    wants = NodeWants(
        keys=keys,
        probe_dir=str(folder),
        token=token,
        model_path=job.model_path,
        tracking_uri=job.tracking_uri,
        timeout_s=job.checks.look_timeout_s,
    )

    def make() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / node.DRIVER_FILE).write_text(token)

    made = node.seen_within(wants.timeout_s, {"shared": make}) if "shared" in keys else {}
    return wants, {key: seen for key, seen in made.items() if seen.error}


def close_probe(wants: NodeWants, reports: Reports, nodes: list[GpuNode]) -> list[str]:
    """Labels of nodes that wrote a file which is not here; the folder is gone afterwards."""
    if "shared" not in wants.keys:
        return []
    folder = Path(wants.probe_dir)
    try:
        wrote = [entry for entry in nodes if not reports[entry.label]["shared"].error]
        return [entry.label for entry in wrote if not _holds(folder / entry.node_id, wants.token)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _holds(path: Path, token: str) -> bool:
    return path.is_file() and path.read_text() == token


def end_after(timeout_s: float, verdicts: Verdicts) -> threading.Timer:
    """The limit of the whole job, running: then what is untold does not hold, and the process is gone."""

    def end() -> None:
        verdicts.give_up(timeout_s)
        # Something hangs, so an orderly end would hang too. Ray ends the tasks and actors of a job that is gone.
        os._exit(0)

    limit = threading.Timer(timeout_s, end)
    limit.daemon = True
    limit.start()
    return limit


def main(argv: list[str]) -> None:
    job = ReadyJob.model_validate_json(argv[1])
    log = EventLog()
    verdicts = Verdicts(log, job.checks.skip)
    limit = end_after(job.checks.timeout_s, verdicts)
    try:
        run(job, verdicts)
    except Exception as error:
        log.emit(Fault(boundary=type(error).__name__, message=str(error), fatal=True))
        raise
    finally:
        limit.cancel()


if __name__ == "__main__":
    clean_output()
    main(sys.argv)
