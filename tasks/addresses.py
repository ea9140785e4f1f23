"""Addresses hold no login. What settings say is kept in MLflow and told in logs, reports and jobs' command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

LOGIN_PATTERN = r"//[^/?#\s]*@"
"""User information before a host (RFC 3986, 3.2.1), also where no scheme is named."""
_SLASH_IN_PASSWORD = re.compile(r"//[^/?#\s:\[]*:(?!\d*[/?#\s]|\d*$)\S*@")
"""A password that nobody encoded may hold what ends an authority; a port is a number."""
LOGINS = {
    "tracking_uri": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or MLFLOW_TRACKING_TOKEN)",
    "jobs_address": "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN)",
    "dashboard": "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (or RAY_AUTH_TOKEN)",
    "url": "MAZE_ENDPOINT_API_KEY",
    "registry": "image.login, or what docker login keeps",
    "AWS_ENDPOINT_URL": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile of the AWS chain",
    "PREFECT_API_URL": "PREFECT_API_AUTH_STRING or PREFECT_API_KEY",
}
"""Setting, or environment variable -> what its login is given by instead."""
LOGINS |= {
    "MLFLOW_TRACKING_URI": LOGINS["tracking_uri"],
    "RAY_JOBS_ADDRESS": LOGINS["jobs_address"],
    "SERVE_DASHBOARD": LOGINS["dashboard"],
    "SERVE_URL": LOGINS["url"],
}


def has_login(text: str) -> bool:
    """Whether an address in it brings a user, or a user and a password."""
    return bool(re.search(LOGIN_PATTERN, text) or _SLASH_IN_PASSWORD.search(text))


def refusal(name: str) -> str:
    """Why, and how the login is given instead. Never says what was given."""
    how = LOGINS.get(name.rpartition(".")[2], "a variable that the server's client knows")
    return (
        "an address with a login in it (user:password@host) was given, and it would stand in MLflow, logs, reports and "
        f"command lines: give the address alone, and the login by the environment of whoever asks there ({how}), on a "
        "cluster from a Secret"
    )


def refuse_logins(document: Any) -> None:
    """Raises pydantic's ValidationError with the path of every text that holds a login, and never the text."""
    faults = [
        InitErrorDetails(
            type=PydanticCustomError("login_in_address", "{why}", {"why": refusal(str(path[-1]) if path else "")}),
            loc=path,
            input="***",
        )
        for path, text in _texts(document)
        if has_login(text)
    ]
    if faults:
        raise ValidationError.from_exception_data("settings", faults, hide_input=True)


def addresses_with_login(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that give an address with a login -> why that is refused."""
    return {name: refusal(name) for name in LOGINS if name in environ and has_login(environ[name])}


def _texts(document: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[int | str, ...], str]]:
    if isinstance(document, str):
        yield path, document
    elif isinstance(document, Mapping):
        for key, value in document.items():
            yield from _texts(value, (*path, str(key)))
    elif isinstance(document, list | tuple):
        for number, value in enumerate(document):
            yield from _texts(value, (*path, number))
