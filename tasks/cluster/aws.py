"""EKS Pod Identity and HyperPod's machines through boto3: the one owner of the EKS and SageMaker clients.

An association is found by cluster, namespace and service account; making it twice changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import boto3

from tasks.clients.ask_aws import ask_aws, is_absent
from tasks.errors import AwsRefused, ClusterNotReady

OURS = {"maze-retrain/made-by": "maze-retrain"}
"""Tag of the associations that this pipeline made."""
Associated = Literal["created", "changed", "unchanged"]


class PodIdentity:
    """Which IAM role the pods of a service account get. Raises AwsRefused."""

    def __init__(self, region: str, eks_cluster: str, client: Any = None) -> None:
        self._cluster = eks_cluster
        self._eks = client or boto3.client("eks", region_name=region)

    def ensure(self, namespace: str, account: str, role_arn: str, take_over: bool = False) -> Associated:
        """Associate the service account with the role. Pods that exist already do not get it.

        Raises ClusterNotReady where somebody else associated it with another one, unless ``take_over`` says so.
        """
        there = self._look(namespace, account)
        if there is None:
            ask_aws(
                self._eks.create_pod_identity_association,
                "eks:CreatePodIdentityAssociation",
                clusterName=self._cluster,
                namespace=namespace,
                serviceAccount=account,
                roleArn=role_arn,
                tags=OURS,
                # The same request made again after a broken answer finds the first.
                clientRequestToken=hashlib.sha256(f"{self._cluster}/{namespace}/{account}".encode()).hexdigest(),
            )
            return "created"
        if there["roleArn"] == role_arn:
            return "unchanged"
        if not _is_ours(there) and not take_over:
            raise ClusterNotReady(
                f"service account {namespace}/{account} is associated with {there['roleArn']}, wanted {role_arn}, and "
                "this pipeline did not do that; choose another hosting.service_account, correct hosting.role_arn, or "
                "set hosting.take_over: pods of others may lose their role by it"
            )
        ask_aws(
            self._eks.update_pod_identity_association,
            "eks:UpdatePodIdentityAssociation",
            clusterName=self._cluster,
            associationId=there["associationId"],
            roleArn=role_arn,
        )
        return "changed"

    def role(self, namespace: str, account: str) -> str | None:
        """The role that is associated, or None."""
        there = self._look(namespace, account)
        return None if there is None else there["roleArn"]

    def is_ours(self, namespace: str, account: str) -> bool:
        """Whether this pipeline made the association that is there."""
        there = self._look(namespace, account)
        return there is not None and _is_ours(there)

    def remove(self, namespace: str, account: str) -> bool:
        """Delete the association; False when there was none. The role stays: the pipeline did not make it."""
        there = self._look(namespace, account)
        if there is None:
            return False
        try:
            ask_aws(
                self._eks.delete_pod_identity_association,
                "eks:DeletePodIdentityAssociation",
                clusterName=self._cluster,
                associationId=there["associationId"],
            )
        except AwsRefused as refusal:
            # An earlier try arrived and its answer did not.
            if not is_absent(refusal):
                raise
        return True

    def _look(self, namespace: str, account: str) -> dict[str, Any] | None:
        found = ask_aws(
            self._eks.list_pod_identity_associations,
            "eks:ListPodIdentityAssociations",
            clusterName=self._cluster,
            namespace=namespace,
            serviceAccount=account,
        )["associations"]
        if not found:
            return None
        return ask_aws(
            self._eks.describe_pod_identity_association,
            "eks:DescribePodIdentityAssociation",
            clusterName=self._cluster,
            associationId=found[0]["associationId"],
        )["association"]


def _is_ours(association: dict[str, Any]) -> bool:
    return OURS.items() <= association.get("tags", {}).items()


@dataclass(frozen=True)
class Machine:
    """One machine of a HyperPod cluster."""

    instance_id: str
    instance_group: str
    instance_type: str
    status: str
    """Running, Pending, Failure, ShuttingDown, SystemUpdating, DeepHealthCheckInProgress or NotFound."""
    message: str


class HyperPodMachines:
    """What SageMaker says about a HyperPod cluster. Raises AwsRefused."""

    def __init__(self, region: str, cluster: str, client: Any = None) -> None:
        self._cluster = cluster
        self._sagemaker = client or boto3.client("sagemaker", region_name=region)

    def status(self) -> str:
        """InService, Updating, SystemUpdating, Creating, RollingBack, Deleting or Failed, with its message."""
        found = ask_aws(self._sagemaker.describe_cluster, "sagemaker:DescribeCluster", ClusterName=self._cluster)
        return " ".join(part for part in (found["ClusterStatus"], found.get("FailureMessage", "")) if part)

    def machines(self) -> list[Machine]:
        """Every machine, whatever its state."""
        return [
            Machine(
                node["InstanceId"],
                node["InstanceGroupName"],
                node["InstanceType"],
                node["InstanceStatus"]["Status"],
                node["InstanceStatus"].get("Message", ""),
            )
            for page in self._pages()
            for node in page["ClusterNodeSummaries"]
        ]

    def _pages(self) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            page = ask_aws(
                self._sagemaker.list_cluster_nodes, "sagemaker:ListClusterNodes", ClusterName=self._cluster, **more
            )
            yield page
            if not page.get("NextToken"):
                return
            more = {"NextToken": page["NextToken"]}
