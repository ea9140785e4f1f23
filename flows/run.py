"""Run a deployment's parameters here and now: ``python -m flows.run retrain/local [key.path=value ...]``.

The flow run appears in the Prefect UI as any other; what a worker would do in its own process happens in this one.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import yaml
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.templating import apply_values

from tasks.report import as_markdown, curl_lines

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


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    pairs = (argument.split("=", 1) for argument in argv[2:])
    flow, parameters = load_deployment(argv[1], {key: yaml.safe_load(value) for key, value in pairs})
    os.environ.update(job_env(argv[1]))
    result = flow(**parameters)
    print("\n" + as_text(result))
    tracking = getattr(parameters["settings"], "tracking", None)
    if tracking:
        print(f"Prefect: {os.environ.get('PREFECT_API_URL', '').removesuffix('/api')}")
        page = result.get("mlflow", {}).get("url") if isinstance(result, dict) else None
        print(f"MLflow:  {page or tracking.tracking_uri}")
    return 0


def as_text(result: Any) -> str:
    """What a flow returned, for the terminal."""
    if isinstance(result, dict) and "served" in result:
        return f"{as_markdown(result)}\n{curl_lines(result)}\n"
    if isinstance(result, dict) and "checks" in result:
        # The plan alone needs the Kubernetes client.
        from tasks.plan import as_markdown as plan_as_markdown

        return plan_as_markdown(result)
    if isinstance(result, dict) and "left" in result:
        return left_as_text(result)
    return str(result)


def left_as_text(result: dict[str, Any]) -> str:
    """What clean-up found, as a table."""
    columns = ("part", "name", "found", "usd_per_h", "keep")
    rows = ["| " + " | ".join(str(thing[column]) for column in columns) + " |" for thing in result["left"]]
    head = ["| part | what | found | USD/h | stays because |", "|---|---|---|---:|---|"]
    together = f"{result['usd_per_h']} USD an hour together"
    return "\n".join([*head, *rows, "", together]) if rows else "nothing is left"


if __name__ == "__main__":
    sys.exit(main(sys.argv))
