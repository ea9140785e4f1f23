"""One request to AWS, and what its refusal means: shared by the adapters of its services."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from tasks.errors import AwsRefused


def ask_aws(call: Any, permission: str, **arguments: Any) -> Any:
    """One request; raises AwsRefused, which names the permission that it takes."""
    try:
        return call(**arguments)
    except ClientError as error:
        said = error.response.get("Error", {})
        raise AwsRefused(
            f"{error.operation_name} was refused: {said.get('Code')}: {said.get('Message')}; check the names in "
            f"the settings, and that the identity has {permission}"
        ) from error
    except BotoCoreError as error:
        raise AwsRefused(f"AWS cannot be asked: {error}; check credentials, region and network") from error


def is_absent(refusal: AwsRefused) -> bool:
    """Whether AWS said that there is no such thing."""
    error = refusal.__cause__
    return isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") == "ResourceNotFoundException"
