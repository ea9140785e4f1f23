"""S3 as everything here asks it: tried again for a while, and never waited for without an end."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

PATIENT = Config(retries={"mode": "standard", "total_max_attempts": 6}, connect_timeout=10, read_timeout=60)
"""botocore's standard mode: no connection, 5xx and "slow down" again, with growing pauses of up to 20 s. It may write
twice: names never change their meaning, and the one object that does is looked at afterwards (serving/champion.py)."""
BRISK = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=1, read_timeout=2)
"""Where somebody waits for the answer who can do without: once, and two seconds at most without a byte."""


class LoginInAddress(ValueError):
    """The object store's address holds a user or a password; botocore's errors would repeat it."""


def s3_client(config: Config = PATIENT) -> Any:
    """By the usual AWS chain; raises LoginInAddress."""
    client = boto3.client("s3", config=config)
    if "@" in urlsplit(client.meta.endpoint_url).netloc:
        raise LoginInAddress(
            "the object store's address (AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or endpoint_url of a profile) has a "
            "login in it: give the address alone, and the login by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or by "
            "a profile of the AWS chain"
        )
    return client


ABSENT = ("NoSuchKey", "404")
DENIED = ("AccessDenied", "403", "Forbidden")


def code_of(error: BaseException) -> str:
    """S3's word for what went wrong; empty where no answer came."""
    return error.response.get("Error", {}).get("Code", "") if isinstance(error, ClientError) else ""


def got(s3: Any, bucket: str, key: str) -> bytes | None:
    """The object's bytes; None where there is none. Raises what botocore raises."""
    try:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    except ClientError as error:
        if code_of(error) in ABSENT:
            return None
        raise


def in_words(error: BaseException) -> str:
    """What S3 said, and what a refusal can mean."""
    if code_of(error) in DENIED and isinstance(error, ClientError) and error.operation_name == "GetObject":
        return (
            f"{error}; S3 refuses to read an object that is absent, too, where the identity lacks s3:ListBucket: grant "
            "it s3:GetObject and s3:ListBucket"
        )
    return str(error)
