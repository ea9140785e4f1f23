"""The picture in docs/architecture.md shows the code as it is."""

from __future__ import annotations

from prefect import Task

import flows.retrain as retrain_page
from docs.draw_architecture import DOT, FOLDER, SVG, arrows, as_dot, current, digest_line

HINT = "the rooms have changed: make architecture draws them anew"


def test_the_picture_was_drawn_from_this_code() -> None:
    assert DOT.read_text() == current(), HINT
    assert SVG.read_text().endswith(digest_line(DOT.read_text())), HINT


def test_every_room_has_its_paragraph() -> None:
    text = (FOLDER / "architecture.md").read_text()
    rooms = [line.split('"')[1] for line in DOT.read_text().splitlines() if "fillcolor" in line]
    missing = [room for room in rooms if f"`{room.replace('.', '/')}`" not in text and "shared" not in room]
    assert not missing, f"docs/architecture.md says nothing of {', '.join(missing)}"


def test_every_stage_of_the_run_stands_in_its_table() -> None:
    text = (FOLDER / "architecture.md").read_text()
    stages = [value.name for value in vars(retrain_page).values() if isinstance(value, Task)]
    assert len(stages) > 15
    assert not [name for name in stages if f"| `{name}` |" not in text]


def test_rooms_that_import_each_other_would_show_as_two_arrows() -> None:
    found = {"tasks.a": {"tasks.b"}, "tasks.b": {"tasks.a"}}
    assert '"tasks.a" -> "tasks.b";' in as_dot(found)
    assert '"tasks.b" -> "tasks.a";' in as_dot(found)
    import grimp

    drawn = arrows(grimp.build_graph("flows", "tasks", "rl", "serving", cache_dir=None))
    both_ways = [(a, b) for a in drawn for b in drawn[a] if a in drawn[b]]
    assert not both_ways
