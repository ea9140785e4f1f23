"""What Prefect's server has after `make deploy`: whose pool, which version, tags, a line about each."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.deployments import deployments
from tests.services.flows.prefect_site import Prefect, type_

pytestmark = pytest.mark.slow_s(120)

ROOT = Path(__file__).resolve().parents[3]
MAX_DESCRIPTION = 92
"""Characters. Prefect's page of a deployment shows about so many in a line of its column."""


def registered(prefect: Prefect) -> dict[str, dict[str, Any]]:
    flows = {flow["id"]: flow["name"] for flow in prefect.filtered("flows")}
    return {f"{flows[found['flow_id']]}/{found['name']}": found for found in prefect.filtered("deployments")}


def of_pool(pool: str) -> set[str]:
    return {name for name, entry in deployments().items() if entry["work_pool"]["name"] == pool}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def test_deploy_registers_what_a_worker_here_runs_and_nothing_of_the_cluster(prefect: Prefect) -> None:
    found = registered(prefect)
    assert set(found) == of_pool("local")
    assert {entry["work_pool_name"] for entry in found.values()} == {"local"}
    assert {pool["name"] for pool in prefect.filtered("work_pools")} == {"local"}
    assert all(name in prefect.registered for name in found)
    assert f"{prefect.site}/deployments" in prefect.registered


def test_each_has_the_commit_as_its_version_tags_and_a_line_that_fits(prefect: Prefect) -> None:
    changes = "+changes" if git("status", "--porcelain") else ""
    version = git("rev-parse", "HEAD")[:12] + changes
    for name, entry in registered(prefect).items():
        assert entry["version"] == version, name
        assert "local" in entry["tags"], name
        assert len(entry["tags"]) == 2, name
        assert 0 < len(entry["description"]) <= MAX_DESCRIPTION, name


@pytest.mark.parametrize("profile", ["hyperpod", "kuberay"])
def test_a_cluster_s_are_registered_when_asked_for_and_touch_no_others(prefect: Prefect, profile: str) -> None:
    before = registered(prefect)
    done = type_(prefect.env, "deploy", profile)
    assert done.returncode == 0, done.stderr
    after = registered(prefect)
    assert set(after) - set(before) == of_pool(profile)
    assert {name: entry["updated"] for name, entry in after.items() if name in before} == {
        name: entry["updated"] for name, entry in before.items()
    }
    (schedule,) = after[f"retrain/{profile}"]["schedules"]
    assert not schedule["active"]
    assert {entry["version"] for entry in after.values()} == {before["retrain/local"]["version"]}
    # Whoever looks at this server next is a person with a laptop.
    for name in of_pool(profile):
        prefect.client.delete(f"/deployments/{after[name]['id']}")
    prefect.client.delete(f"/work_pools/{profile}")


def test_a_profile_that_nobody_has_is_refused_with_those_there_are(prefect: Prefect) -> None:
    done = type_(prefect.env, "deploy", "hyperpd")
    assert done.returncode == 2
    assert done.stderr == "error: there is no profile hyperpd; there are hyperpod, kuberay, local\n"
    assert "hyperpd" not in {pool["name"] for pool in prefect.filtered("work_pools")}
