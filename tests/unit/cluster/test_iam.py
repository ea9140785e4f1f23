"""The policies of docker/iam grant what the code asks for, and nothing that it never asks for.

What any test's code asks is held against them too (tests/asked_of_aws.py); here the code itself is read.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore import xform_name
from botocore.stub import Stubber

from flows.deployments import load_settings
from serving.retire import adapters_of
from serving.store import got
from tests import asked_of_aws
from tests.asked_of_aws import POLICIES, S3_ACTIONS, NotGranted, action_of, granted, roles_of

BESIDES_BOTO3 = {
    "worker": {
        "eks:DescribeCluster": "aws eks update-kubeconfig (docker/worker.yaml)",
        "eks:TagResource": "tags of a new association (EKS User Guide, tagging: tag-on-create)",
        "iam:GetRole": "CreatePodIdentityAssociation looks at the role (Service Authorization Reference, EKS)",
        "iam:PassRole": "CreatePodIdentityAssociation hands it on (the same)",
        "ecr:BatchGetImage": "HEAD of a manifest (tasks/image/registry.py)",
    }
}
PUSH = {
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
}
"""docker login, a push and the pull of a cache (ECR User Guide, required IAM permissions for pushing an image)."""
PERMISSION = re.compile(r"(eks|sagemaker|codebuild|logs|ecr|s3):[A-Z]\w+")
OPERATIONS = {action: operation for operation, action in S3_ACTIONS.items()} | {
    "s3:GetObject": "GetObject",
    "s3:DeleteObjectVersion": "DeleteObject",
}


def modules_of(role: str) -> list[Path]:
    paths = [*Path("tasks").rglob("*.py"), *Path("serving").rglob("*.py")]
    return [path for path in paths if role in roles_of(path.as_posix())]


def words(role: str) -> Iterator[str]:
    """Names of attributes, and texts: a client's method, a paginator's name, a permission that a refusal names."""
    for path in modules_of(role):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("role", ["worker", "pods"])
def test_nothing_is_granted_that_the_code_never_asks_for(role: str) -> None:
    known = set(words(role))
    boto3_actions = granted(role) - set(BESIDES_BOTO3.get(role, {}))
    unused = [a for a in boto3_actions if xform_name(OPERATIONS.get(a, a.partition(":")[2])) not in known]
    assert unused == []


def test_every_permission_that_a_refusal_names_is_granted() -> None:
    named = {word for word in words("worker") if PERMISSION.fullmatch(word)}
    assert {"eks:UpdatePodIdentityAssociation", "ecr:BatchDeleteImage", "codebuild:StopBuild"} <= named
    assert named - granted("worker") == set()


def test_codebuild_and_the_operator_may_do_what_their_commands_do() -> None:
    spec = Path("docker/buildspec.yml").read_text()
    assert "aws ecr get-login-password" in spec
    # The rest is AWS's own list for a project with a source in S3 and a log (CodeBuild User Guide, service role).
    logs = {"logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"}
    assert granted("codebuild") == PUSH | logs | {"s3:GetObject", "s3:GetObjectVersion"}
    assert granted("operator") == PUSH | {"eks:DescribeCluster"}


def test_the_policies_speak_of_the_resources_that_the_deployments_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", "/p")
    run = load_settings("retrain/hyperpod", {})
    worker = (POLICIES / "worker.json").read_text()
    account, region = run.hosting.role_arn.split(":")[4], run.hosting.region
    bucket, _, prefix = run.image.source_uri.removeprefix("s3://").partition("/")
    folder = run.serve.server.adapters_uri.removeprefix(f"s3://{bucket}/").partition("/")[0]
    wanted = [
        run.hosting.role_arn,
        f"arn:aws:eks:{region}:{account}:cluster/{run.hosting.eks_cluster}",
        f"arn:aws:codebuild:{region}:{account}:project/{run.image.project}",
        f"arn:aws:s3:::{bucket}/{prefix}/*",
        f"arn:aws:s3:::{bucket}/{folder}/*",
        *(f"arn:aws:ecr:{region}:{account}:repository/{image.repository}" for image in run.image.images.values()),
    ]
    assert [arn for arn in wanted if f'"{arn}"' not in worker] == []
    for path in POLICIES.glob("*.json"):
        for statement in json.loads(path.read_text())["Statement"]:
            assert not any("*" in action for action in statement["Action"])
            assert statement["Resource"] != "*" or statement["Action"] == ["ecr:GetAuthorizationToken"]


def test_an_operation_without_its_grant_is_noticed_where_the_code_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    s3 = boto3.client("s3")
    without = granted("worker") - {"s3:ListBucketVersions"}
    monkeypatch.setattr(asked_of_aws, "granted", lambda role: without)
    with Stubber(s3) as stubber:
        stubber.add_client_error("get_object", "NoSuchKey")
        assert got(s3, "models", "adapters/tiny/a") is None
        asked_of_aws.require_granted()
        stubber.add_client_error("list_object_versions", "NotImplemented")
        stubber.add_response("list_objects_v2", {})
        stubber.add_client_error("list_multipart_uploads", "NotImplemented")
        assert adapters_of(s3, "s3://models/adapters/tiny", "r") == {}
    with pytest.raises(NotGranted, match=r"serving/retire.py asks for s3:ListBucketVersions, which docker/iam/worker"):
        asked_of_aws.require_granted()


def test_who_deletes_a_version_takes_another_permission() -> None:
    assert action_of("s3", "DeleteObject", {"VersionId": "1"}) == "s3:DeleteObjectVersion"
    assert action_of("s3", "DeleteObject", {}) == "s3:DeleteObject"
    assert action_of("s3", "HeadObject", {}) == "s3:GetObject"
