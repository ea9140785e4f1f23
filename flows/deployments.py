"""prefect.yaml read as Prefect reads it: deployments by name, their parameters filled and validated."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values
from pydantic import ValidationError

from flows.parts import InParts, put, told_for
from flows.refusals import refused

PREFECT_YAML = Path(__file__).resolve().parents[1] / "prefect.yaml"


class UnknownDeployment(ValueError):
    """prefect.yaml has no deployment of this name."""


class UnknownSetting(ValueError):
    """A deployment has no setting of this name; says which was meant."""


def deployments(path: Path = PREFECT_YAML) -> dict[str, dict[str, Any]]:
    """Deployments by ``<flow>/<deployment>``, placeholders unfilled."""
    document = yaml.safe_load(path.read_text())
    return {f"{flow_name(entry['entrypoint'])}/{entry['name']}": entry for entry in document["deployments"]}


def flow_name(entrypoint: str) -> str:
    """``flows/base_model.py:base_model`` -> ``base-model``, as the flows name themselves."""
    return entrypoint.rsplit(":", 1)[1].replace("_", "-")


def load_deployment(name: str, overrides: dict[str, Any]) -> tuple[Flow[..., Any], dict[str, Any]]:
    """The flow and its validated parameters; environment placeholders are filled from this environment.

    ``overrides`` are knobs by their names, and paths that begin with ``platform.``. Raises UnknownDeployment,
    UnknownSetting, or SettingsRefused for what does not fit, alone or together.
    """
    entry = _entry(name)
    flow, parameters = _flow(entry), apply_values(copy.deepcopy(entry["parameters"]), {})
    for path, value in overrides.items():
        part, inner = place_of(name, path)
        put(parameters.setdefault(part, {}), inner, value)
    if knobs := get_type_hints(flow.fn).get("knobs"):
        try:
            knobs.model_validate(parameters["knobs"])
        except ValidationError as error:
            raise refused(error, knobs, {name: name for name in knobs.model_fields}) from None
    validated = flow.validate_parameters(parameters)
    settings_type(name).of(validated["platform"], validated.get("knobs"))
    return flow, validated


def load_settings(name: str, overrides: dict[str, Any]) -> Any:
    """The same as the flow's one settings object."""
    _, parameters = load_deployment(name, overrides)
    return settings_type(name).of(parameters["platform"], parameters.get("knobs"))


def settings_type(name: str) -> type[InParts]:
    """What a deployment's knobs and platform make together; raises UnknownDeployment."""
    hints = get_type_hints(_flow(_entry(name)).fn, include_extras=True)
    (mark,) = hints["platform"].__metadata__
    return mark.whole


def place_of(name: str, path: str) -> tuple[str, str]:
    """``max_steps`` -> (knobs, max_steps), ``platform.train.lora.rank`` -> (platform, train.lora.rank).

    Raises UnknownSetting for any other path, with the one that was meant.
    """
    whole = settings_type(name)
    part, _, inner = path.partition(".")
    if part == "platform" and inner:
        if inner in whole.knob_paths.values():
            raise UnknownSetting(told_for(inner, whole.knob_paths))
        return part, inner
    if path in whole.knob_paths:
        return "knobs", path
    knobs = f"the knobs of {name} are {', '.join(whole.knob_paths) or 'none'}"
    if path in whole.knob_paths.values():
        raise UnknownSetting(
            f"{path} is a knob now: {told_for(path, whole.knob_paths).rpartition(' ')[2]}=...; {knobs}"
        )
    if part in whole.model_fields:
        raise UnknownSetting(f"{path} belongs to the platform: write platform.{path}")
    raise UnknownSetting(f"there is no {path}; {knobs}, everything else begins with platform.")


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
