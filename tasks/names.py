"""Names that travel into other systems: each system's rule, checked with the settings and named by its source."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field

DNS_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
DNS_1123 = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{DNS_1123}(\.{DNS_1123})*"
SAGEMAKER = r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"
EKS = r"[0-9A-Za-z][A-Za-z0-9_-]*"


def follows(pattern: str, most: int, rule: str) -> Callable[[str], str]:
    """A validator that names the rule and whose it is."""

    def check(name: str) -> str:
        if len(name) > most or not re.fullmatch(pattern, name):
            raise ValueError(f"{name!r} ({len(name)} characters) is no name there: {rule}; choose another")
        return name

    return check


def _name(pattern: str, most: int, rule: str) -> tuple[AfterValidator, object]:
    """The validator, and the same for the form in Prefect's pages."""
    return AfterValidator(follows(pattern, most, rule)), Field(
        json_schema_extra={"pattern": f"^({pattern})$", "maxLength": most}
    )


is_run_name = follows(
    DNS_1123,
    63,
    "lowercase letters, digits and dashes, a letter or digit at both ends, at most 63 (Kubernetes' label values and "
    "Prefect's artifact keys have the run's name in them)",
)
RunName = Annotated[
    str, AfterValidator(is_run_name), Field(json_schema_extra={"pattern": f"^({DNS_1123})$", "maxLength": 63})
]
RunNameOrEmpty = Annotated[
    str,
    AfterValidator(lambda name: name and is_run_name(name)),
    Field(json_schema_extra={"pattern": f"^({DNS_1123})?$", "maxLength": 63}),
]

RayClusterName = Annotated[
    str,
    *_name(
        DNS_1035,
        53,
        "a DNS-1035 label of at most 53 characters: lowercase letters, digits and dashes, a letter first, no dash last "
        "(KubeRay, ValidateRayClusterMetadata: its services are named after it)",
    ),
]
RayServiceName = Annotated[
    str,
    *_name(
        DNS_1035,
        47,
        "a DNS-1035 label of at most 47 characters: lowercase letters, digits and dashes, a letter first, no dash last "
        "(KubeRay, ValidateRayServiceMetadata: its RayClusters are named after it)",
    ),
]
Namespace = Annotated[
    str, *_name(DNS_1123, 63, "a DNS-1123 label: lowercase letters, digits and dashes inside (Kubernetes, namespaces)")
]
KubernetesName = Annotated[
    str,
    *_name(
        SUBDOMAIN,
        253,
        "a DNS-1123 subdomain: lowercase letters, digits, dashes and dots inside (Kubernetes, service accounts and "
        "volume claims)",
    ),
]
KubernetesNameOrEmpty = Annotated[
    str,
    AfterValidator(
        lambda name: name and follows(SUBDOMAIN, 253, "a DNS-1123 subdomain, or nothing (Kubernetes)")(name)
    ),
    Field(json_schema_extra={"pattern": f"^({SUBDOMAIN})?$", "maxLength": 253}),
]
SageMakerName = Annotated[
    str,
    *_name(SAGEMAKER, 63, "letters, digits and dashes inside, at most 63 (SageMaker, CreateCluster)"),
]
EksName = Annotated[str, *_name(EKS, 100, "letters, digits, dashes and underscores, at most 100 (EKS, CreateCluster)")]
