"""``python -m flows``: the commands where the project is not installed, as in the worker's image."""

from __future__ import annotations

from flows.cli.main import main

if __name__ == "__main__":
    main()
