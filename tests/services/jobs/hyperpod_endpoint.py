"""HyperPod's way to a Ray dashboard, on loopback: a Kubernetes API that signs connections, a gate that asks for one.

Both speak TLS. The Kubernetes API knows callers by the signed address that ``aws eks get-token`` makes (the access key
in it; its signature is not checked: only STS could). Behind the gate is a real Ray dashboard, websockets included.
Source: the requests of toolkit-for-ray-on-sagemaker-ai 1.0.4 and AWS's pages on RayDashboardConnection.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import aiohttp
import trustme
from aiohttp import web

from tasks.clients.ray_token import token_headers

CONNECTIONS = "/apis/connection.access.sagemaker.amazonaws.com/v1alpha1/namespaces/{namespace}/raydashboardconnections"
HOP_BY_HOP = ("transfer-encoding", "content-encoding", "content-length", "connection")


class HyperPodEndpoint:
    """State and script of the two servers; what tests change takes effect at the next request."""

    def __init__(self, dashboard: str, owner: str) -> None:
        self.dashboard, self.owner = dashboard, owner
        self.identities = {owner}
        """Access keys that EKS knows."""
        self.clusters = {("maze", "maze-train")}
        self.is_public_endpoint_on = True
        self.stumbles = 0
        """Requests for a connection that are answered with 503 first."""
        self.breaks_after = ""
        """Text in a job's log after which every session ends, once, and open connections are cut."""
        self.asked: list[str] = []
        self.sessions: set[str] = set()
        self.address = ""
        self._tokens: set[str] = set()
        self._open: list[web.Request] = []

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post(CONNECTIONS, self._connection)
        app.router.add_get("/bearer-auth", self._bearer_auth)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        return app

    def end_sessions(self) -> None:
        """As after six hours, or when the signing key is revoked: cookies are void, connections gone."""
        self.sessions.clear()
        for request in self._open:
            if request.transport is not None:
                request.transport.abort()

    async def _connection(self, request: web.Request) -> web.Response:
        caller = _caller(request.headers.get("Authorization", ""))
        cluster = (await request.json())["spec"]["clusterName"]
        self.asked.append(f"connection to {cluster} by {caller}")
        if self.stumbles:
            self.stumbles -= 1
            return web.json_response({"message": "try again"}, status=503)
        if caller not in self.identities:
            return web.json_response({"message": "Unauthorized"}, status=401)
        if (request.match_info["namespace"], cluster) not in self.clusters:
            return web.json_response({"message": "not found"}, status=404)
        if caller != self.owner:
            return web.json_response({"message": "forbidden"}, status=403)
        if not self.is_public_endpoint_on:
            return web.json_response({"status": {}}, status=201)
        self._tokens.add(token := uuid4().hex)
        url = f"{self.address}/bearer-auth?token={token}"
        return web.json_response({"kind": "RayDashboardConnection", "status": {"connectionUrl": url}}, status=201)

    async def _bearer_auth(self, request: web.Request) -> web.Response:
        token = request.query.get("token", "")
        if token not in self._tokens:
            return web.Response(status=401)
        self._tokens.discard(token)
        self.sessions.add(session := uuid4().hex)
        self.asked.append("session")
        answer = web.Response(status=302, headers={"Location": "/"})
        answer.set_cookie("ray_session", session, secure=True, httponly=True, max_age=6 * 3600)
        return answer

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if request.cookies.get("ray_session") not in self.sessions:
            self.asked.append(f"{request.path} without a session")
            return web.Response(status=401, text="no session")
        # The gate takes sessions; behind it Ray wants its own token.
        async with aiohttp.ClientSession(self.dashboard, headers=token_headers(self.dashboard)) as inside:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                return await self._websocket(request, inside)
            async with inside.request(request.method, request.rel_url, data=await request.read()) as answer:
                kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    async def _websocket(self, request: web.Request, inside: aiohttp.ClientSession) -> web.WebSocketResponse:
        outside = web.WebSocketResponse()
        await outside.prepare(request)
        self._open.append(request)
        try:
            async with inside.ws_connect(request.rel_url) as upstream:
                async for message in upstream:
                    await outside.send_str(message.data)
                    if self.breaks_after and self.breaks_after in message.data:
                        self.breaks_after = ""
                        # What was sent arrives before the cut.
                        await asyncio.sleep(0.2)
                        self.end_sessions()
        finally:
            self._open.remove(request)
        with contextlib.suppress(ConnectionError):
            await outside.close()
        return outside


def _caller(authorization: str) -> str:
    """Access key of the presigned GetCallerIdentity in an EKS bearer token; '' where it is none or too old."""
    encoded = authorization.removeprefix("Bearer k8s-aws-v1.")
    address = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    signed = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    is_fresh = datetime.now(UTC) - signed < timedelta(minutes=15)
    is_theirs = query["Action"] == "GetCallerIdentity" and "x-k8s-aws-id" in query["X-Amz-SignedHeaders"]
    return query["X-Amz-Credential"].split("/")[0] if is_fresh and is_theirs else ""


@contextmanager
def serving(endpoint: HyperPodEndpoint, authority: trustme.CA) -> Iterator[str]:
    """Both servers on one port of 127.0.0.1, with a certificate of ``authority``; yields their address."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    loop, runner = asyncio.new_event_loop(), web.AppRunner(endpoint.app(), shutdown_timeout=1.0)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        endpoint.address = f"https://127.0.0.1:{runner.addresses[0][1]}"

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield endpoint.address
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
