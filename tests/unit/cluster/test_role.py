"""docker/role.yaml grants what a run asks of Kubernetes, and nothing else; the simulated cluster refuses by it."""

from __future__ import annotations

from typing import Any

from kubernetes_validate import validate

from tasks.cluster.checks import ASKED, ASKED_EVERYWHERE
from tests.simulated_cluster.rbac import ROLE, Asked, documents, may

TOOLKIT = {("create", "connection.access.sagemaker.amazonaws.com", "raydashboardconnections")}
"""AWS's toolkit asks for it, not this code; readiness makes such a session itself."""


def _granted(kind: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for role in documents(kind)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def _asked(table: dict[tuple[str, str], tuple[str, ...]]) -> set[tuple[str, str, str]]:
    return {(verb, group, resource) for (group, resource), verbs in table.items() for verb in verbs}


def test_the_role_grants_exactly_what_readiness_asks_for() -> None:
    assert _granted("Role") == _asked(ASKED) | TOOLKIT
    assert _granted("ClusterRole") == _asked(ASKED_EVERYWHERE)


def test_its_documents_are_kubernetes_own() -> None:
    kinds = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert f"kind: {kinds[0]}" in ROLE.read_text()
    for kind in kinds:
        for document in documents(kind):
            validate(document, "1.32", strict=True)


def test_bindings_name_the_roles_and_the_group_of_the_access_entry() -> None:
    bindings: list[dict[str, Any]] = [*documents("RoleBinding"), *documents("ClusterRoleBinding")]
    assert [(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings] == [
        ("Role", "maze-worker"),
        ("ClusterRole", "maze-worker"),
    ]
    assert {subject["name"] for each in bindings for subject in each["subjects"]} == {"maze-worker"}


def test_what_it_does_not_grant_is_refused() -> None:
    assert may(Asked("patch", "ray.io", "rayclusters", "maze"))
    assert may(Asked("list", "", "pods", ""))
    refused = [
        Asked("patch", "ray.io", "rayclusters", "default"),
        Asked("delete", "", "pods", ""),
        Asked("get", "", "secrets", "maze"),
        Asked("patch", "", "rayclusters", "maze"),
    ]
    assert not any(map(may, refused))
