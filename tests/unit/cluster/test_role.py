"""docker/role*.yaml grant what a run asks of Kubernetes, and nothing else; the simulated cluster refuses by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import validate

from tasks.cluster.any_kubernetes import ASKED_OF_KUEUE
from tasks.cluster.aws_checks import ASKED_ON_AWS
from tasks.cluster.checks import ASKED, ASKED_EVERYWHERE, Verbs
from tests.simulated_cluster.rbac import ROLE, ROLE_KUBERAY, Asked, documents, may

TOOLKIT = {("create", "connection.access.sagemaker.amazonaws.com", "raydashboardconnections")}
"""AWS's toolkit asks for it, not this code; readiness makes such a session itself."""


BOTH = pytest.mark.parametrize(
    ("role", "subject"),
    [
        (ROLE, {"kind": "Group", "name": "maze-worker"}),
        (ROLE_KUBERAY, {"kind": "ServiceAccount", "name": "maze-worker"}),
    ],
)


def _granted(kind: str, role: Path) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for document in documents(kind, role)
        for rule in document["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def _asked(table: Verbs) -> set[tuple[str, str, str]]:
    return {(verb, group, resource) for (group, resource), verbs in table.items() for verb in verbs}


def test_each_role_grants_exactly_what_readiness_asks_for() -> None:
    assert _granted("Role", ROLE) == _asked(ASKED_ON_AWS) | TOOLKIT
    assert _granted("Role", ROLE_KUBERAY) == _asked({**ASKED, **ASKED_OF_KUEUE})
    for role in (ROLE, ROLE_KUBERAY):
        assert _granted("ClusterRole", role) == _asked(ASKED_EVERYWHERE)


@BOTH
def test_its_documents_are_kubernetes_own(role: Path, subject: dict[str, str]) -> None:
    kinds = ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]
    assert f"kind: {kinds[0]}" in role.read_text()
    for kind in kinds:
        for document in documents(kind, role):
            validate(document, "1.32", strict=True)


@BOTH
def test_bindings_name_the_roles_and_whom_the_worker_is_there(role: Path, subject: dict[str, str]) -> None:
    bindings: list[dict[str, Any]] = [*documents("RoleBinding", role), *documents("ClusterRoleBinding", role)]
    assert [(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings] == [
        ("Role", "maze-worker"),
        ("ClusterRole", "maze-worker"),
    ]
    assert all(subject.items() <= bound.items() for each in bindings for bound in each["subjects"])


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
