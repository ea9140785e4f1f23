"""The token that a Ray cluster wants of whoever asks it, where its authentication is on: given by Ray's own variables.

Ray's client brings it where ``RAY_AUTH_MODE`` is ``token``, read once when it is loaded; Serve's REST API and the
dashboard have no client of Ray's. Addresses of another scheme log in in a way of their own, and never get it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tasks.errors import SubmissionRefused


def token_headers(address: str) -> dict[str, str]:
    """Header of every request to a Ray cluster at this address; none where no token is named.

    Raises SubmissionRefused where the file that is named cannot be read.
    """
    if not address.startswith(("http://", "https://")):
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN") or _in_file()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _in_file() -> str:
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if path is None and os.environ.get("RAY_AUTH_MODE") == "token":
        path = str(Path.home() / ".ray" / "auth_token")
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SubmissionRefused(
            f"Ray's token cannot be read ({error}); name its file in RAY_AUTH_TOKEN_PATH (locally: make up writes it)"
        ) from error
