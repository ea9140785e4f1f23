"""prefect.yaml read as Prefect reads it: deployments by name, their parameters filled and validated."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"


class UnknownDeployment(ValueError):
    """prefect.yaml has no deployment of this name."""


def deployments(path: Path = PREFECT_YAML) -> dict[str, dict[str, Any]]:
    """Deployments by ``<flow>/<deployment>``, placeholders unfilled."""
    document = yaml.safe_load(path.read_text())
    return {f"{flow_name(entry['entrypoint'])}/{entry['name']}": entry for entry in document["deployments"]}


def flow_name(entrypoint: str) -> str:
    """``flows/base_model.py:base_model`` -> ``base-model``, as the flows name themselves."""
    return entrypoint.rsplit(":", 1)[1].replace("_", "-")


def load_deployment(name: str, overrides: dict[str, Any]) -> tuple[Flow[..., Any], dict[str, Any]]:
    """The flow and its validated parameters; environment placeholders are filled from this environment.

    Raises UnknownDeployment, or pydantic's ValidationError for parameters that do not fit.
    """
    known = deployments()
    if name not in known:
        raise UnknownDeployment(f"prefect.yaml has no deployment {name}; it has {', '.join(sorted(known))}")
    entry = known[name]
    parameters = apply_values(copy.deepcopy(entry["parameters"]), {})
    for path, value in overrides.items():
        _set(parameters["settings"], path, value)
    flow = load_flow_from_entrypoint(str(PREFECT_YAML.parent / entry["entrypoint"]))
    return flow, flow.validate_parameters(parameters)


def job_env(name: str) -> dict[str, str]:
    """What a worker adds to the environment of this deployment's runs."""
    variables = deployments()[name]["work_pool"].get("job_variables", {})
    filled: Any = apply_values(copy.deepcopy(variables.get("env", {})), {})
    return filled


def _set(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        document = document.setdefault(key, {})
    document[last] = value
