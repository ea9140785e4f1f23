"""AWS on loopback where moto has nothing: EKS Pod Identity (REST) and HyperPod's cluster and machines (JSON 1.1)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ASSOCIATIONS = re.compile(r"^/clusters/([^/]+)/pod-identity-associations(?:/([^/]+))?$")


class Absent(Exception):
    """No association of this number (EKS API reference, ResourceNotFoundException)."""


class FakeAws:
    """State of one account."""

    def __init__(self) -> None:
        self.associations: dict[str, dict[str, Any]] = {}
        self.changes: list[str] = []
        self.cluster_status = "InService"
        self.machines: list[dict[str, Any]] = []
        self.refusal: tuple[int, str, str] | None = None

    def add_machine(self, group: str, instance_type: str, status: str = "Running", message: str = "") -> None:
        self.machines.append(
            {
                "InstanceId": f"i-{len(self.machines)}",
                "InstanceGroupName": group,
                "InstanceType": instance_type,
                "InstanceStatus": {"Status": status, "Message": message},
            }
        )

    def sagemaker(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        if operation == "DescribeCluster":
            return {"ClusterStatus": self.cluster_status, "FailureMessage": ""}
        assert operation == "ListClusterNodes", operation
        # Two a page, so that whoever reads only the first one sees too few.
        start = int(body.get("NextToken", 0))
        page: dict[str, Any] = {"ClusterNodeSummaries": self.machines[start : start + 2]}
        return page | ({"NextToken": str(start + 2)} if start + 2 < len(self.machines) else {})

    def pod_identity(self, method: str, number: str | None, body: dict[str, Any], query: dict[str, Any]) -> Any:
        if number is None and method == "GET":
            found = [
                a
                for a in self.associations.values()
                if a["namespace"] == query["namespace"][0] and a["serviceAccount"] == query["serviceAccount"][0]
            ]
            return {"associations": found}
        if number is not None and number not in self.associations:
            raise Absent(number)
        known = [a for a in self.associations.values() if a.get("token", "") == body.get("clientRequestToken")]
        if method == "POST" and number is None and known:
            # The same request again (EKS API reference, clientRequestToken).
            return {"association": known[0]}
        if method == "POST" and number is None:
            number = f"a-{len(self.associations) + 1}"
            kept = {key: body.get(key, {}) for key in ("namespace", "serviceAccount", "roleArn", "tags")}
            self.associations[number] = {**kept, "associationId": number, "token": body.get("clientRequestToken")}
        elif method == "POST":
            self.associations[number or ""]["roleArn"] = body["roleArn"]
        if method != "GET":
            self.changes.append(f"{method} {number}")
        found = self.associations.pop(number or "") if method == "DELETE" else self.associations[number or ""]
        return {"association": found}


def _handler(fake: FakeAws) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def _answer(self, status: int, body: dict[str, Any], kind: str = "") -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if kind:
                self.send_header("x-amzn-ErrorType", kind)
            self.end_headers()
            self.wfile.write(data)

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if fake.refusal:
                status, kind, message = fake.refusal
                return self._answer(status, {"__type": kind, "message": message}, kind)
            if target := self.headers.get("X-Amz-Target"):
                return self._answer(200, fake.sagemaker(target.rpartition(".")[2], body))
            match = ASSOCIATIONS.match(parts.path)
            assert match, parts.path
            try:
                answer = fake.pod_identity(self.command, match[2], body, parse_qs(parts.query))
            except Absent as absent:
                kind = "ResourceNotFoundException"
                return self._answer(404, {"__type": kind, "message": str(absent)}, kind)
            return self._answer(200, answer)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names

    return Handler


@contextmanager
def aws_api() -> Iterator[tuple[FakeAws, str]]:
    """The account and the address to give boto3 as its endpoint."""
    fake = FakeAws()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
