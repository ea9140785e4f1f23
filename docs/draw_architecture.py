"""The picture of the rooms, drawn from the code's own imports: ``make architecture``.

Writes docs/architecture.dot, and docs/architecture.svg from it (Graphviz: ``apt-get install graphviz``). An arrow means
that a file of one room imports a file of another. Arrows that follow from others are left out, so that the picture
shows the way down; every arrow of the code is in the .dot file. A test compares the .dot file with the code, and the
.svg file with the .dot file.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import grimp

PACKAGES = ("flows", "tasks", "rl", "serving")
COLOURS = {"flows": "#f6d8ae", "tasks": "#cfe3f1", "rl": "#d5ead0", "serving": "#eed5e6"}
FOLDER = Path(__file__).parent
DOT, SVG = FOLDER / "architecture.dot", FOLDER / "architecture.svg"


def room_of(module: str) -> str:
    """The folder in which a module lies; a file outside of folders is shared by those above it, and stands alone."""
    package, *rest = module.split(".")
    return package if package in ("flows", "serving") or not rest else f"{package}.{rest[0]}"


def arrows(graph: grimp.ImportGraph) -> dict[str, set[str]]:
    """Room -> rooms that it imports from."""
    found: dict[str, set[str]] = {room_of(module): set() for module in graph.modules if "." in module}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            here, there = room_of(module), room_of(imported)
            if here != there and here in found and there in found:
                found[here].add(there)
    return found


def as_dot(found: dict[str, set[str]], files: frozenset[str] = frozenset()) -> str:
    """The graph for Graphviz: folders as boxes, files that stand alone as ellipses."""
    lines = ["digraph rooms {", '  node [shape=box style="filled,rounded" fontname="Helvetica" color="#777777"];']
    lines.append('  edge [color="#8a8a8a" arrowsize=0.6]; rankdir=TB; nodesep=0.25; ranksep=0.45;')
    for room in sorted(found):
        label = room.replace(".", "/") + (".py" if room in files else "")
        shape = " shape=ellipse fontsize=11" if room in files else ""
        lines.append(f'  "{room}" [label="{label}" fillcolor="{COLOURS[room.partition(".")[0]]}"{shape}];')
    lines += [f'  "{here}" -> "{there}";' for here in sorted(found) for there in sorted(found[here])]
    return "\n".join([*lines, "}", ""])


def digest_line(dot: str) -> str:
    """Says in the .svg file from which .dot file it was made."""
    return f"<!-- from architecture.dot, sha256 {hashlib.sha256(dot.encode()).hexdigest()} -->\n"


def current() -> str:
    """The .dot file as the code has it now."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found = arrows(graph)
    return as_dot(found, frozenset(room for room in found if not graph.find_children(room)))


def main() -> None:
    dot = current()
    DOT.write_text(dot)
    try:
        calm = subprocess.run(["tred"], input=dot, capture_output=True, text=True, check=True).stdout
        svg = subprocess.run(["dot", "-Tsvg"], input=calm, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        sys.exit("error: Graphviz is not installed (apt-get install graphviz); only architecture.dot was written")
    SVG.write_text(svg + digest_line(dot))
    print(f"{DOT} and {SVG}")


if __name__ == "__main__":
    main()
