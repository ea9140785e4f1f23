"""The simulated cluster's API server on loopback: real HTTP, as clients speak it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.simulated_cluster.kuberay import reconcile
from tests.simulated_cluster.loopback import on_loopback
from tests.simulated_cluster.rbac import Asked, may, verb_of
from tests.simulated_cluster.scheduler import run_pods, schedule
from tests.simulated_cluster.schemas import KUBERAY, admitted
from tests.simulated_cluster.world import Clock, Refused, World

PATH = re.compile(r"^/(?:api/v1|apis/(ray\.io)/v1)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?$")
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def answer(world: World, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
    """Status and document; raises Refused."""
    if path == REVIEW:
        asked = body["spec"]["resourceAttributes"]
        allowed = _may(world, Asked(*(asked.get(key, "") for key in ("verb", "group", "resource", "namespace"))))
        return 201, {"kind": "SelfSubjectAccessReview", "spec": body["spec"], "status": {"allowed": allowed}}
    match = PATH.match(path)
    if not match:
        raise Refused(404, "NotFound", "404 page not found")
    namespace, plural, name = match[2] or "", match[3], match[4] or ""
    asked = Asked(verb_of(method, name, query.get("watch") == "true"), match[1] or "", plural, namespace)
    if not _may(world, asked):
        raise Refused(403, "Forbidden", f'{plural} is forbidden: User "maze-worker" {asked}', name)
    if method == "POST":
        return 201, _create(world, plural, namespace, body, query)
    if not name:
        return 200, {"kind": "List", "metadata": {}, "items": _listed(world, plural, namespace, query)}
    found = world.get(plural, namespace, name)
    if found is None:
        raise Refused(404, "NotFound", f'{plural} "{name}" not found', name)
    if method == "GET":
        return 200, found
    if method == "PATCH":
        return 200, _patch(world, (plural, namespace, name), body, query)
    return 200, _delete(world, (plural, namespace, name), body)


def _may(world: World, asked: Asked) -> bool:
    return not world.faults.forbidden and f"{asked.verb} {asked.resource}" not in world.denied and may(asked)


def _listed(world: World, plural: str, namespace: str, query: dict[str, str]) -> list[dict[str, Any]]:
    if plural == "nodes":
        found = [machine.document() for machine in world.machines.values()]
    elif plural == "events":
        uid = query.get("fieldSelector", "").partition("involvedObject.uid=")[2].partition(",")[0]
        return [event for event in world.events if uid in ("", event["involvedObject"]["uid"])]
    else:
        found = world.every(plural, namespace)
    wanted = dict(pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair)
    return [each for each in found if wanted.items() <= (each["metadata"].get("labels") or {}).items()]


def _create(world: World, plural: str, namespace: str, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    _admission(world, plural)
    made = world.put(plural, namespace, admitted(plural, body, world.operator, _is_strict(query)))
    world.changes.append(f"create {plural} {made['metadata']['name']}")
    return made


def _is_strict(query: dict[str, str]) -> bool:
    return query.get("fieldValidation") == "Strict"


def _admission(world: World, plural: str) -> None:
    if world.faults.webhook and plural in KUBERAY:
        raise Refused(403, "Forbidden", f'admission webhook "policy" denied the request: {world.faults.webhook}')


def _patch(world: World, key: tuple[str, str, str], body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
    """A merge patch (RFC 7386); only another spec makes another generation."""
    there = world.objects[key]
    _as_seen(world, there, None, body.get("metadata", {}).get("resourceVersion"))
    _admission(world, key[0])
    merged = admitted(key[0], _merged(there, body), world.operator, _is_strict(query))
    if query.get("dryRun") == "All":
        return merged
    merged["metadata"]["generation"] += merged.get("spec") != there.get("spec")
    world.objects[key] = merged
    world.touch(key)
    world.changes.append(f"patch {key[0]} {key[2]}")
    return world.objects[key]


def _merged(there: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = copy.deepcopy(there) if isinstance(there, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _as_seen(world: World, there: dict[str, Any], uid: str | None, version: str | None) -> None:
    """The object, if it is still the one that the client saw (apiserver, registry/store.go: Conflict, 409)."""
    metadata = there["metadata"]
    if world.faults.conflicts:
        world.faults.conflicts -= 1
        raise Refused(409, "Conflict", "the object has been modified", metadata["name"])
    if uid not in (None, metadata["uid"]) or version not in (None, metadata["resourceVersion"]):
        raise Refused(409, "Conflict", "the object has been modified", metadata["name"])


def _delete(world: World, key: tuple[str, str, str], options: dict[str, Any]) -> dict[str, Any]:
    there, exactly = world.objects[key], options.get("preconditions", {})
    _as_seen(world, there, exactly.get("uid"), exactly.get("resourceVersion"))
    world.changes.append(f"delete {key[0]} {key[2]}")
    if key[0] in KUBERAY:
        # Foreground: it stays until what it owns is gone.
        there["metadata"].setdefault("deletionTimestamp", world.clock.text())
        world.touch(key)
    else:
        world.drop(*key)
    return there


def _handler(world: World) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            with world.lock:
                try:
                    status, document = answer(world, self.command, parts.path, query, body)
                except Refused as refused:
                    status, document = refused.code, refused.body
                if query.get("watch") == "true" and status == 200:
                    document = None if world.faults.watches_end else _changes(world, parts.path, query)
                    data = "".join(json.dumps(line) + "\n" for line in document or []).encode()
                else:
                    data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815 - http.server's names

    return Handler


def _changes(world: World, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
    """What a watch has told when it ends: everything since the version that it begins at."""
    match, since = PATH.match(path), int(query.get("resourceVersion") or 0)
    assert match
    return [
        {"type": kind, "object": document}
        for version, kind, key, document in world.history
        if version > since and key[0] == match[3] and match[2] in (None, key[1])
    ]


@contextmanager
def simulated_cluster(folder: Path, operator: str = "1.7") -> Iterator[tuple[World, str]]:
    """The cluster and a kubeconfig that leads to it."""
    world = World(Clock(), operator)
    world.parts = [reconcile, schedule, run_pods, reconcile]
    with on_loopback(folder, _handler(world)) as kubeconfig:
        yield world, kubeconfig
