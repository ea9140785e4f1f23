"""The fixed evaluation set: shipped, checked, disjoint from training."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from rl.grpo.rows import write_rows
from rl.maze.eval_set import (
    EvalSetMismatch,
    NotEnoughMazes,
    build_eval_set,
    distinct_mazes,
    load_eval_set,
    write_eval_set,
)
from rl.maze.grid import generate_maze, num_mazes
from rl.maze.run_mazes import FIRST_JUDGE_SEED, may_judge, prepare_mazes
from rl.settings import DataSettings, MazeSettings

SHIPPED = Path("rl/eval_sets/maze_2d_7x9.json")
SHA256 = "f99d832805b24cb5b609da95136b9ccd466fca092fc03df4f2a5a5a97ad7cbfb"


def data(**changes: object) -> DataSettings:
    values = {"maze": MazeSettings(), "eval_manifest": str(SHIPPED), "eval_sha256": SHA256, "num_train_mazes": 256}
    return DataSettings(**{**values, **changes})  # type: ignore[arg-type]


def test_the_shipped_set_is_64_distinct_mazes_and_its_own_digest() -> None:
    eval_set = load_eval_set(SHIPPED)
    assert eval_set.sha256 == SHA256
    assert len(eval_set.fingerprints) == 64
    assert eval_set == build_eval_set("maze_2d", 7, 9, 64)


def test_the_ceiling_counts_what_anybody_can_solve_in_time() -> None:
    eval_set = build_eval_set("maze_2d", 9, 9, 64)
    needed = [maze.turns_needed for maze in eval_set.mazes]
    assert eval_set.ceiling(15) == sum(turns <= 15 for turns in needed) < 64
    assert eval_set.ceiling(12) == 0
    assert eval_set.ceiling(100) == 64


def test_training_mazes_are_distinct_and_none_is_evaluated_or_kept_for_judging() -> None:
    mazes = prepare_mazes(data(first_train_seed=0))
    fingerprints = [generate_maze(seed, 7, 9).fingerprint for seed in mazes.train_seeds]
    assert len(set(fingerprints)) == 256
    assert mazes.eval_set.fingerprints.isdisjoint(fingerprints)
    assert not any(may_judge(fingerprint) for fingerprint in fingerprints)


def test_each_run_trains_on_mazes_of_its_own_and_the_same_name_on_the_same() -> None:
    monday, again, tuesday = (prepare_mazes(data().of_run(name)) for name in ("monday", "monday", "tuesday"))
    assert monday == again
    assert not set(monday.train_seeds) & set(tuesday.train_seeds)
    assert max(monday.train_seeds + tuesday.train_seeds) < FIRST_JUDGE_SEED


def test_a_seed_in_the_settings_has_every_run_train_on_the_same_mazes() -> None:
    pinned = data(first_train_seed=7)
    assert pinned.of_run("monday") == pinned.of_run("tuesday") == pinned


def test_a_quarter_of_all_mazes_is_kept_for_judging() -> None:
    of_5x7 = [maze.fingerprint for _, maze in distinct_mazes("maze_2d", 5, 7)]
    of_7x9 = [generate_maze(seed, 7, 9).fingerprint for seed in range(4000)]
    assert 0 < sum(map(may_judge, of_5x7)) < len(of_5x7)
    # Four standard deviations of a share of 4000 are 2.7 points.
    assert sum(map(may_judge, of_7x9)) / 4000 == pytest.approx(0.25, abs=0.03)


def test_the_same_settings_draw_the_same_training_mazes() -> None:
    assert prepare_mazes(data()).train_sha256 == prepare_mazes(data()).train_sha256
    assert prepare_mazes(data()).train_sha256 != prepare_mazes(data(first_train_seed=7)).train_sha256


def test_an_edited_manifest_is_refused(tmp_path: Path) -> None:
    document = json.loads(SHIPPED.read_text())
    document["mazes"][3]["seed"] = 999
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(document))
    with pytest.raises(EvalSetMismatch, match=rf"edited.json says sha256 {SHA256}, its content has"):
        load_eval_set(edited)


def test_a_manifest_whose_mazes_the_generator_no_longer_draws_is_refused(tmp_path: Path) -> None:
    eval_set = build_eval_set("maze_2d", 7, 9, 4)
    wrong = eval_set.mazes[1].model_copy(update={"fingerprint": "0" * 64})
    write_eval_set(eval_set.model_copy(update={"mazes": (eval_set.mazes[0], wrong)}), tmp_path / "set.json")
    with pytest.raises(EvalSetMismatch, match="the generator changed"):
        load_eval_set(tmp_path / "set.json")


def test_another_manifest_than_the_settings_mean_is_refused(tmp_path: Path) -> None:
    write_eval_set(build_eval_set("maze_2d", 7, 9, 8), tmp_path / "small.json")
    with pytest.raises(EvalSetMismatch, match=r"eval_sha256 wants f99d83"):
        prepare_mazes(data(eval_manifest=str(tmp_path / "small.json")))


def test_a_manifest_for_another_size_is_refused() -> None:
    with pytest.raises(EvalSetMismatch, match=r"is for maze_2d 7x9, data.maze is maze_2d 9x9"):
        prepare_mazes(data(maze=MazeSettings(height=9)))


def test_a_missing_manifest_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"evaluation manifest nowhere.json does not exist"):
        prepare_mazes(data(eval_manifest="nowhere.json"))


def test_a_turn_limit_below_every_shortest_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"data.max_turns is 5, the easiest evaluation maze needs 11 turns; raise it"):
        prepare_mazes(data(max_turns=5))


def test_rows_carry_seed_and_settings_for_the_environment(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", [4, 9], data(), "eval")
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    first, second = rows.to_dict("records")
    assert (first["seed"], second["seed"]) == (4, 9)
    assert MazeSettings.model_validate_json(first["maze"]) == MazeSettings()
    assert first["prompt"][0]["role"] == "user"


@pytest.mark.parametrize(("height", "width", "there_are"), [(5, 5, 16), (5, 7, 60), (7, 7, 768), (7, 9, 9660)])
def test_all_mazes_of_a_size_are_counted_and_drawing_ends_with_the_last(
    height: int, width: int, there_are: int
) -> None:
    assert num_mazes(height, width) == there_are
    if there_are < 100:
        assert len(list(distinct_mazes("maze_2d", height, width))) == there_are


@pytest.mark.parametrize(
    ("size", "num_eval", "num_train", "message"),
    [
        # Of 16 and of 768 mazes 8 are evaluated; by their fingerprints 2 and 191 of the others are kept for judging.
        (5, 8, 7, "6 mazes of 5x5 are neither evaluated nor kept for judging, data.num_train_mazes wants 7; lower it"),
        (7, 8, 600, "569 mazes of 7x7 are neither evaluated nor .* data.num_train_mazes wants 600; lower it"),
    ],
)
def test_more_mazes_than_there_are_is_an_error_that_says_how_many(
    tmp_path: Path, size: int, num_eval: int, num_train: int, message: str
) -> None:
    eval_set = build_eval_set("maze_2d", size, size, num_eval)
    write_eval_set(eval_set, tmp_path / "set.json")
    settings = DataSettings(
        maze=MazeSettings(height=size, width=size),
        eval_manifest=str(tmp_path / "set.json"),
        eval_sha256=eval_set.sha256,
        num_train_mazes=num_train,
    )
    with pytest.raises(NotEnoughMazes, match=message):
        prepare_mazes(settings)
    if num_train == 7:
        assert len(prepare_mazes(settings.model_copy(update={"num_train_mazes": 6})).train_seeds) == 6


def test_an_evaluation_set_of_more_mazes_than_there_are_is_refused() -> None:
    with pytest.raises(NotEnoughMazes, match="there are 16 mazes of 5x5, 17 are wanted"):
        build_eval_set("maze_2d", 5, 5, 17)
