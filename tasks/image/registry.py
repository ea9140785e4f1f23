"""A registry's own word on what it holds (HTTP API v2, Basic authentication, as ECR and docker-registry take it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import requests

from tasks.errors import RegistryRefused, RegistryUnreachable

MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
    )
)
"""A registry converts, or hides, what the client does not accept: then another digest comes back, or none."""


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str = field(repr=False)


class ImageRegistry:
    """Raises RegistryUnreachable when nobody answers, RegistryRefused when it will not have us."""

    def __init__(self, url: str, login: Callable[[], Credentials | None], timeout_s: float = 30.0) -> None:
        self._url, self._login, self._timeout_s = url, login, timeout_s

    @property
    def host(self) -> str:
        """What stands before the first slash of an image's name."""
        return self._url.partition("://")[2]

    def digest(self, repository: str, tag: str) -> str | None:
        """``sha256:...`` of the manifest under this tag, or None when there is none."""
        answer = self._head(f"{self._url}/v2/{repository}/manifests/{tag}")
        if answer.status_code == 404:
            return None
        if answer.status_code in (401, 403):
            raise RegistryRefused(
                f"{self.host} answered {answer.status_code} when asked for {repository}:{tag}; check image.login, and "
                "that the identity may pull and push there (ecr:BatchGetImage, ecr:PutImage)"
            )
        digest = answer.headers.get("Docker-Content-Digest")
        if not answer.ok or not digest:
            raise RegistryUnreachable(
                f"{self.host} answered {answer.status_code} with digest {digest} for {repository}:{tag}; is it a "
                "registry that speaks the HTTP API v2? correct image.registry"
            )
        return digest

    def _head(self, url: str) -> requests.Response:
        credentials = self._login()
        auth = (credentials.user, credentials.password) if credentials else None
        try:
            return requests.head(url, headers={"Accept": MANIFESTS}, auth=auth, timeout=self._timeout_s)
        except requests.RequestException as error:
            raise RegistryUnreachable(
                f"the registry {self._url} does not answer ({type(error).__name__}); check image.registry, its "
                "scheme too, and the network"
            ) from error
