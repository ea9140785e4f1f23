"""Run a deployment's parameters here and now: ``python -m flows.cli.run retrain/local [key.path=value ...]``.

The flow run appears in the Prefect UI as any other; what a worker would do in its own process happens in this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from flows.cli.typed import typed
from flows.deployments import job_env, load_deployment, place_of, settings_type
from tasks.evidence.report import as_markdown, curl_lines


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    flow, parameters = load_deployment(argv[1], overrides_of(argv[1], argv[2:]))
    os.environ.update(job_env(argv[1]))
    result = flow(**parameters)
    print("\n" + as_text(result))
    tracking = parameters["platform"].get("tracking")
    if tracking:
        print(f"Prefect: {os.environ.get('PREFECT_API_URL', '').removesuffix('/api')}")
        page = result.get("mlflow", {}).get("url") if isinstance(result, dict) else None
        print(f"MLflow:  {page or tracking['tracking_uri']}")
    return 0


def overrides_of(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """``key.path=value`` of a deployment's settings, each value typed by its field."""
    settings, overrides = settings_type(name), dict[str, Any]()
    for argument in arguments:
        path, sign, text = argument.partition("=")
        if not sign:
            raise ValueError(f"{argument!r} is no key=value")
        part, inner = place_of(name, path)
        overrides[path] = typed(text, settings.knob_paths[inner] if part == "knobs" else inner, settings)
    return overrides


def as_text(result: Any) -> str:
    """What a flow returned, for the terminal."""
    if isinstance(result, dict) and "served" in result:
        return f"{as_markdown(result)}\n{curl_lines(result)}\n"
    if isinstance(result, dict) and "checks" in result:
        # The plan alone needs the Kubernetes client.
        from tasks.plan.write import as_markdown as plan_as_markdown

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
