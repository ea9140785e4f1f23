"""prefect.yaml read as Prefect reads it: deployments by name, their parameters filled and validated."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values
from pydantic import BaseModel

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
    entry = _entry(name)
    parameters = apply_values(copy.deepcopy(entry["parameters"]), {})
    for path, value in overrides.items():
        _set(parameters["settings"], path, value)
    flow = _flow(entry)
    return flow, flow.validate_parameters(parameters)


def settings_type(name: str) -> type[BaseModel]:
    """What a deployment's settings are; raises UnknownDeployment."""
    kind: type[BaseModel] = get_type_hints(_flow(_entry(name)).fn)["settings"]
    return kind


def job_env(name: str) -> dict[str, str]:
    """What a worker adds to the environment of this deployment's runs."""
    variables = deployments()[name]["work_pool"].get("job_variables", {})
    filled: Any = apply_values(copy.deepcopy(variables.get("env", {})), {})
    return filled


def _entry(name: str) -> dict[str, Any]:
    known = deployments()
    if name not in known:
        raise UnknownDeployment(f"prefect.yaml has no deployment {name}; it has {', '.join(sorted(known))}")
    return known[name]


def _flow(entry: dict[str, Any]) -> Flow[..., Any]:
    return load_flow_from_entrypoint(str(PREFECT_YAML.parent / entry["entrypoint"]))


def _set(document: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in [*parents, ""]:
        if not isinstance(document, dict):
            raise ValueError(f"{path}: there is nothing below {document!r}")
        document = document.setdefault(key, {}) if key else document
    document[last] = value
