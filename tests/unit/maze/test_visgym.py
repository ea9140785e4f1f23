"""VisGym's mazes as a source of a run: drawn without VisGym, held against VisGym where it is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from flows.deployments import load_settings
from rl.maze.environment import VisGymMaze2DEnv
from rl.maze.episode import Episode
from rl.maze.eval_set import EvalSetMismatch, build_eval_set, load_eval_set
from rl.maze.grid import num_mazes, shortest_path, turns_needed
from rl.maze.prompts import Move, action_text
from rl.maze.run_mazes import prepare_mazes
from rl.maze.score import MOVE_LETTERS, EvalReport, EvalRules, Outcome
from rl.maze.visgym import visgym_maze
from rl.proof.questions import probe_conversations
from rl.proof.settings import Questions
from rl.settings import DataSettings, MazeSettings
from tasks.training.curves import episode_rows, evaluation_curves
from tasks.training.data import set_name

SHIPPED = Path("rl/eval_sets/visgym_easy_9x9.json")
MAZE = MazeSettings(env_id="maze_2d/easy", height=9, width=9, cell_px=25)
STOP = "('stop', 'stop')"


def data(**changes: object) -> DataSettings:
    known = {"maze": MAZE, "eval_manifest": str(SHIPPED), "eval_sha256": load_eval_set(SHIPPED).sha256}
    return DataSettings.model_validate({**known, "num_train_mazes": 32, **changes})


def test_the_manifest_that_visgym_made_is_what_is_drawn_here_and_50_of_64_can_be_solved_in_15_turns() -> None:
    eval_set = load_eval_set(SHIPPED)
    assert eval_set == build_eval_set("maze_2d/easy", 9, 9, 64)
    assert [row.seed for row in eval_set.mazes] == list(range(64))
    assert eval_set.ceiling(15) == 50
    assert eval_set.ceiling(17) == 64


def test_a_manifest_of_the_projects_own_mazes_under_visgyms_name_is_refused(tmp_path: Path) -> None:
    ours = build_eval_set("maze_2d", 9, 9, 4).model_copy(update={"env_id": "maze_2d/easy"})
    (path := tmp_path / "set.json").write_text(json.dumps({"sha256": ours.sha256, **ours.model_dump(mode="json")}))
    with pytest.raises(EvalSetMismatch, match="seed 0 gives maze"):
        load_eval_set(path)


def test_a_manifest_of_mazes_that_nobody_can_draw_is_refused(tmp_path: Path) -> None:
    other = build_eval_set("maze_2d", 9, 9, 4).model_copy(update={"env_id": "maze_3d/easy"})
    (path := tmp_path / "set.json").write_text(json.dumps({"sha256": other.sha256, **other.model_dump(mode="json")}))
    with pytest.raises(EvalSetMismatch, match=r"is of maze_3d/easy; mazes can be drawn for maze_2d, maze_2d/easy"):
        load_eval_set(path)


def test_training_mazes_are_visgyms_too_and_none_is_held_out() -> None:
    mazes = prepare_mazes(data())
    drawn = [visgym_maze(seed, 9, 9) for seed in mazes.train_seeds]
    assert mazes.eval_set.fingerprints.isdisjoint(maze.fingerprint for maze in drawn)
    assert mazes.train_ceiling == sum(turns_needed(maze) <= 15 for maze in drawn)


@pytest.mark.parametrize(("height", "width"), [(5, 5), (7, 5), (11, 11)])
def test_its_mazes_are_perfect_and_all_there_are(height: int, width: int) -> None:
    for seed in range(20):
        maze = visgym_maze(seed, height, width)
        rooms = (height // 2) * (width // 2)
        assert (~maze.wall_HW).sum() == 2 * rooms - 1
        assert shortest_path(maze)
    if (height, width) == (5, 5):
        found = {visgym_maze(seed, 5, 5).fingerprint for seed in range(500)}
        assert len(found) == num_mazes(5, 5)


@pytest.mark.parametrize("size", [(8, 9), (9, 3)])
def test_a_size_without_rooms_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be odd and at least 5"):
        visgym_maze(0, *size)


def test_cells_that_visgym_does_not_draw_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"cell_px is 8, VisGym draws its cells with 25"):
        MazeSettings(env_id="maze_2d/easy", height=9, width=9)
    with pytest.raises(ValidationError, match="maze_2d/easy"):
        MazeSettings.model_validate({"env_id": "maze_2d/impossible"})


def test_an_episode_walks_one_of_its_mazes_to_the_target_and_is_paid_there() -> None:
    path = shortest_path(visgym_maze(7, 9, 9))
    episode = Episode(7, MAZE, "strict", max_turns=17)
    assert episode.start().text.startswith("You are navigating a 9x9 maze.")
    for direction in path:
        assert episode.step(action_text(Move(direction))).reward == 0
    last = episode.step(STOP)
    assert (last.reward, last.done, episode.outcome().solved) == (1.0, True, True)


def test_the_png_is_the_picture_also_after_the_agent_has_left_the_target() -> None:
    env = VisGymMaze2DEnv()
    image, _ = env.reset(seed=3)
    *_, last = path = shortest_path(env.maze)
    for direction in [*path, last.opposite, last, last.opposite]:
        image = env.step(action_text(Move(direction)))[0]
        assert np.array_equal(np.asarray(Image.open(BytesIO(env.png())).convert("RGB")), image)
    row, column = (25 * at + 12 for at in env.maze.target)
    assert tuple(image[row, column]) == (255, 255, 255), "it wipes the agent away in white"
    env.reset(seed=3)
    assert tuple(env.render()[row, column]) == (255, 0, 0)


def test_the_proof_asks_about_its_mazes() -> None:
    conversations = list(probe_conversations(Questions(maze=MAZE, num_probes=4, max_reply_tokens=8)))
    assert [len(messages) for messages in conversations] == [1, 3, 5, 7]


def test_what_is_told_of_a_report_speaks_of_its_mazes() -> None:
    path = shortest_path(visgym_maze(7, 9, 9))
    letters = "".join(MOVE_LETTERS[direction] for direction in path) + "S"
    outcome = Outcome(seed=7, solved=True, actions=letters, unparsable_replies=0)
    played = {"max_turns": 17, "parsing": "strict", "max_reply_tokens": 8, "temperature": 0.0}
    rules = EvalRules.model_validate({"eval_set_sha256": "0" * 64, "maze": MAZE, **played})
    report = EvalReport(step=0, rules=rules, model_id="m", outcomes=(outcome,))
    (row,) = episode_rows(report)
    assert (row["turns_needed"], row["hit_walls"]) == (len(path) + 1, 0)
    assert evaluation_curves(report)["eval/hit_walls"] == 0
    assert set_name(MAZE, "selection") == "maze_2d-easy-9x9-selection"


def test_the_run_on_aws_plays_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROJECT_DIR", str(Path.cwd()))
    data = load_settings("retrain/hyperpod", {}).train.data
    assert data.maze == MAZE
    assert prepare_mazes(data.model_copy(update={"num_train_mazes": 4})).eval_set.ceiling(data.max_turns) == 50


@pytest.mark.skipif("VISGYM" not in os.environ, reason="needs a checkout of VisGym: make test-visgym VISGYM=folder")
def test_visgym_itself_draws_the_same_mazes_pictures_texts_and_rewards() -> None:
    path = os.pathsep.join([os.environ["VISGYM"], str(Path.cwd())])
    done = subprocess.run(
        [os.environ.get("VISGYM_PYTHON", sys.executable), "tests/visgym_plays.py"],
        env={**os.environ, "PYTHONPATH": path, "SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    found = json.loads(done.stdout)
    assert found["gymnasium"].startswith(os.environ["VISGYM"]), "VisGym is gymnasium there"
    assert found["different"] == []
    assert found["mazes"][:64] == [row.model_dump() for row in load_eval_set(SHIPPED).mazes]
    for row in found["mazes"]:
        maze = visgym_maze(row["seed"], 9, 9)
        assert (maze.fingerprint, turns_needed(maze)) == (row["fingerprint"], row["turns_needed"])
