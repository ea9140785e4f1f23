"""What the worker may do: docker/role.yaml, as Kubernetes' RBAC authorizer reads it ("Using RBAC Authorization")."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROLE = Path(__file__).parents[2] / "docker" / "role.yaml"
ROLE_KUBERAY = ROLE.with_name("role-kuberay.yaml")
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Asked:
    """One request's attributes."""

    verb: str
    group: str
    resource: str
    namespace: str
    """Empty for all namespaces, and for what has none."""

    def __str__(self) -> str:
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'cannot {self.verb} resource "{self.resource}" in API group "{self.group}" {where}'


def verb_of(method: str, name: str, watches: bool) -> str:
    """The verb of a request (Kubernetes, "Determine the request verb")."""
    if method == "GET":
        return "get" if name else "watch" if watches else "list"
    return VERBS[method]


def documents(kind: str, role: Path = ROLE) -> list[dict[str, Any]]:
    return [each for each in _all(role) if each["kind"] == kind]


def may(asked: Asked) -> bool:
    """A ClusterRole that is bound at the cluster holds everywhere, a Role in its namespace."""
    roles = documents("ClusterRole")
    roles += [each for each in documents("Role") if each["metadata"]["namespace"] == asked.namespace]
    return any(
        asked.verb in rule["verbs"] and asked.group in rule["apiGroups"] and asked.resource in rule["resources"]
        for role in roles
        for rule in role["rules"]
    )


@cache
def _all(role: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(role.read_text()))
