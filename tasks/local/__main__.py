"""``python -m tasks.local up|down|env``: the local services."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tasks.local.process import ServiceFailed
from tasks.local.services import Layout, LocalServices


def main(argv: list[str]) -> int:
    project = Path(__file__).resolve().parents[2]
    layout = Layout(project, project / ".local")
    command = argv[1] if len(argv) == 2 else ""
    services = LocalServices(layout, say=lambda text: print(text, file=sys.stderr))
    try:
        if command == "up":
            for name, url in services.up().items():
                if url.startswith("http"):
                    print(f"{name}={url}")
        elif command == "down":
            services.down()
        elif command == "env":
            for name, value in services.environment().items():
                print(f"export {name}={shlex.quote(value)}")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except ServiceFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
