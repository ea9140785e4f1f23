"""Ray Serve's REST API: deploy one application declaratively, wait for it, say why it failed."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import requests
from urllib3 import Retry

from tasks.clients.ray_token import token_headers
from tasks.clients.retry import PATIENT, patient_session
from tasks.errors import AddressTaken, ListensElsewhere, RolloutFailed

_CONFIG_KEYS = ("import_path", "route_prefix", "runtime_env", "args")


class ServeRest:
    """``dashboard`` is the address of the Ray dashboard of the serving cluster; ``say`` hears how a deployment goes."""

    def __init__(
        self,
        dashboard: str,
        say: Callable[[str], object] = lambda text: None,
        sleep: Callable[[float], object] = time.sleep,
        retry: Retry = PATIENT,
    ) -> None:
        self._url, self._say, self._sleep = f"{dashboard.rstrip('/')}/api/serve/applications/", say, sleep
        self._session = patient_session(retry)
        self._session.headers.update(token_headers(dashboard))

    def ensure(self, document: dict[str, Any], timeout_s: float, poll_s: float = 2.0) -> bool:
        """Make the one application of ``document`` run; returns whether anything had to be deployed.

        A running application with this configuration is left alone, so publishing adapters deploys nothing. Raises
        RolloutFailed with the replicas' own words after a failure or ``timeout_s``.
        """
        (wanted,) = document["applications"]
        http = document["http_options"]
        details = self._details()
        self._address(details, f"{http['host']}:{http['port']}")
        found = details.get("applications", {}).get(wanted["name"])
        same = found is not None and _same(found.get("deployed_app_config") or {}, wanted)
        if same and found is not None and found["status"] == "RUNNING":
            return False
        if not (same and found is not None and found["status"] == "DEPLOYING"):
            self._put(_with_nonce(document) if same else document)
        self._wait(wanted["name"], found, timeout_s, poll_s)
        return True

    def applications(self) -> dict[str, str]:
        """Name -> status of what is deployed."""
        return {name: found["status"] for name, found in self._all().items()}

    def require_address(self, wanted: str) -> str:
        """What a running Serve listens on, or that none runs yet; raises ListensElsewhere where it is not ``wanted``,
        AddressTaken where another process listens there already.

        Serve takes an address when it starts and keeps it, whatever is deployed afterwards.
        """
        return self._address(self._details(), wanted)

    def _address(self, details: dict[str, Any], wanted: str) -> str:
        options = details.get("http_options") or {}
        host, _, port = wanted.partition(":")
        if not options.get("port"):
            if somebody_listens(_as_seen_from_here(host, self._url), int(port)):
                raise AddressTaken(f"another process listens on {wanted}, where Serve would")
            return f"nothing yet; it will be {wanted}"
        if int(options["port"]) != int(port) or options.get("host") not in (host, "0.0.0.0", None):
            raise ListensElsewhere(
                f"Serve at {self._url} listens on {options.get('host')}:{options['port']}, "
                f"platform.serve.server.listen is {wanted}"
            )
        return f"{options.get('host')}:{options['port']}"

    def remove(self) -> None:
        """Remove all applications; the proxy stays."""
        self._put({"applications": []})

    def _wait(self, name: str, before: dict[str, Any] | None, timeout_s: float, poll_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        deployed_before = (before or {}).get("last_deployed_time_s")
        joined = before is not None and before["status"] == "DEPLOYING"
        said = ""
        while True:
            found = self._application(name)
            if (news := _states(name, found or {})) != said:
                self._say(news)
                said = news
            # Right after a PUT the old status can still show.
            fresh = found is not None and (joined or found.get("last_deployed_time_s") != deployed_before)
            if found is not None and fresh and found["status"] == "RUNNING":
                return
            failed = found is not None and fresh and found["status"] in ("DEPLOY_FAILED", "UNHEALTHY")
            if failed or time.monotonic() > deadline:
                state = found["status"] if found else "NOT_STARTED"
                late = "" if failed else f" after {timeout_s:g} s"
                raise RolloutFailed(f"application {name} is {state}{late}; {_cause(found or {})}")
            self._sleep(poll_s)

    def _application(self, name: str) -> dict[str, Any] | None:
        return self._all().get(name)

    def _all(self) -> dict[str, dict[str, Any]]:
        return self._details().get("applications", {})

    def _details(self) -> dict[str, Any]:
        try:
            response = self._session.get(self._url, timeout=30)
            response.raise_for_status()
        except requests.RequestException as error:
            raise self._silent(error) from error
        return response.json()

    def _silent(self, error: requests.RequestException) -> RolloutFailed:
        return RolloutFailed(
            f"{self._url} does not answer ({error}); start the serving cluster (locally: make up) or correct "
            "serve.dashboard"
        )

    def _put(self, document: dict[str, Any]) -> None:
        try:
            response = self._session.put(self._url, json=document, timeout=60)
        except requests.RequestException as error:
            raise self._silent(error) from error
        if not response.ok:
            raise RolloutFailed(f"{self._url} refused the application: {response.status_code} {response.text[:1000]}")


def _same(deployed: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the deployed configuration is the wanted one, nonce aside."""

    def essence(config: dict[str, Any]) -> dict[str, Any]:
        found = {key: config.get(key) for key in _CONFIG_KEYS}
        env = dict((found["runtime_env"] or {}).get("env_vars") or {})
        env.pop("DEPLOY_NONCE", None)
        return {**found, "runtime_env": env}

    return essence(deployed) == essence(wanted)


def _with_nonce(document: dict[str, Any]) -> dict[str, Any]:
    """Ray does not retry a configuration that failed unless something in it changes."""
    (application,) = document["applications"]
    env = {**application["runtime_env"]["env_vars"], "DEPLOY_NONCE": str(time.time_ns())}
    return {**document, "applications": [{**application, "runtime_env": {"env_vars": env}}]}


def _states(name: str, application: dict[str, Any]) -> str:
    """One line: the application and each of its deployments."""
    parts = [f"{part} {d['status'].lower()}" for part, d in application.get("deployments", {}).items()]
    return (
        f"application {name}: {application.get('status', 'not started').lower()}; {', '.join(parts) or 'being built'}"
    )


def _cause(application: dict[str, Any]) -> str:
    """The application's message and its deployments', which hold what the replicas said."""
    deployments = application.get("deployments", {})
    said = [f"{name} is {d['status']}: {d.get('message', '')}" for name, d in deployments.items() if d.get("message")]
    return "\n".join(part for part in (application.get("message", ""), *said) if part) or "it gave no reason"


def somebody_listens(host: str, port: int, timeout_s: float = 2.0) -> bool:
    """Whether a connection is taken there."""
    try:
        with socket.create_connection((host, port), timeout_s):
            return True
    except OSError:
        return False


def _as_seen_from_here(host: str, dashboard: str) -> str:
    """A head that listens on all its addresses has the one of its dashboard among them."""
    return urlsplit(dashboard).hostname or host if host == "0.0.0.0" else host
