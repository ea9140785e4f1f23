"""The judge set: drawn from the run's name, played by all of them, recalled only where nothing could be different."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tasks.release.judge_set
from rl.maze.eval_set import EvalSet, NotEnoughMazes, build_eval_set, load_eval_set, write_eval_set
from rl.maze.grid import generate_maze
from rl.maze.run_mazes import draw_judge_mazes, prepare_mazes
from rl.maze.score import EvalReport, Outcome, make_report
from rl.settings import DataSettings, MazeSettings
from tasks.errors import TrackingUnavailable
from tasks.records import Contest, Evaluations, ServedModel
from tasks.release.judge_set import JUDGE_SET, draw_judge_set, play_judge_set
from tasks.release.settings import EvaluationSettings, JudgeMazesSettings, PlaySettings
from tests.recording import recording
from tests.unit.samples import RULES, SERVER

MANIFEST = Path("rl/eval_sets/maze_2d_7x9.json")
DATA = DataSettings(
    maze=MazeSettings(),
    eval_manifest=str(MANIFEST),
    eval_sha256=load_eval_set(MANIFEST).sha256,
    num_train_mazes=300,
)
PLAY = PlaySettings(max_reply_tokens=8, num_concurrent=32)
SETTINGS = EvaluationSettings(data=DATA, play=PLAY, server=SERVER, software="sha256:s")


def test_judge_mazes_are_the_run_s_own_and_no_run_has_trained_on_them() -> None:
    drawn = draw_judge_mazes(DATA, "run-a", 200)
    assert len(drawn.fingerprints) == len(drawn.mazes) == 200
    for name in ("run-a", "run-b", "run-c"):
        mazes = prepare_mazes(DATA.of_run(name))
        trained_on = {generate_maze(seed, 7, 9).fingerprint for seed in mazes.train_seeds}
        assert not drawn.fingerprints & (trained_on | mazes.eval_set.fingerprints)
    for row in drawn.mazes:
        assert generate_maze(row.seed, 7, 9).fingerprint == row.fingerprint
        assert row.seed < 2**31


def test_the_same_name_draws_the_same_mazes_and_another_one_others() -> None:
    assert draw_judge_mazes(DATA, "run-a", 64) == draw_judge_mazes(DATA, "run-a", 64)
    assert draw_judge_mazes(DATA, "run-a", 64).mazes == draw_judge_mazes(DATA, "run-a", 128).mazes[:64]
    shared = draw_judge_mazes(DATA, "run-a", 64).fingerprints & draw_judge_mazes(DATA, "run-b", 64).fingerprints
    assert len(shared) < 8


@pytest.mark.parametrize(("num_wanted", "enough"), [(4, True), (5, False)])
def test_more_mazes_than_are_left_are_refused_with_what_to_do(tmp_path: Path, num_wanted: int, enough: bool) -> None:
    # Of 5x5 there are 16; of the 12 that are not evaluated, 4 have fingerprints that are kept for judging.
    eval_set = build_eval_set("maze_2d", 5, 5, 4)
    write_eval_set(eval_set, tmp_path / "set.json")
    data = DataSettings(
        maze=MazeSettings(height=5, width=5),
        eval_manifest=str(tmp_path / "set.json"),
        eval_sha256=eval_set.sha256,
        num_train_mazes=8,
    )
    if enough:
        assert len(draw_judge_mazes(data, "r", num_wanted).mazes) == num_wanted
    else:
        with pytest.raises(NotEnoughMazes, match=r"4 mazes of 5x5 are kept for .* judge.num_mazes wants 5; lower it"):
            draw_judge_mazes(data, "r", num_wanted)


class Endpoint:
    """Plays for whoever is asked for: half of the mazes are solved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.played: list[str] = []
        monkeypatch.setattr(tasks.release.judge_set, "play_eval_set", self.play)

    def play(
        self, settings: EvaluationSettings, model: ServedModel, mazes: EvalSet, progress: Callable[..., Any]
    ) -> EvalReport:
        self.played.append(model.model_id)
        seeds = [maze.seed for maze in mazes.mazes]
        outcomes = [Outcome(seed=seed, solved=seed % 2 == 0, actions="S", unparsable_replies=0) for seed in seeds]
        rules = RULES.model_copy(update={"eval_set_sha256": mazes.sha256})
        return make_report(model.step, rules, model.model_id, seeds, outcomes, settings.conditions)


def model(model_id: str, sha256: str) -> ServedModel:
    return ServedModel(url="http://llm", model_id=model_id, sha256=sha256)


CONTEST = Contest(candidate=model("m:new", ""), base=model("m", "base"), champion=model("m:old", "old"))


def play(
    context: Any, settings: EvaluationSettings = SETTINGS, contest: Contest = CONTEST, num: int = 8
) -> Evaluations:
    judge_set = draw_judge_set.fn(context, JudgeMazesSettings(data=DATA, num_mazes=num))
    return play_judge_set.fn(context, settings, judge_set, contest)


def test_all_play_the_same_mazes_and_a_repeated_run_recalls_the_opponents(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, (context, events) = Endpoint(monkeypatch), recording()
    first = play(context)
    assert endpoint.played == ["m:new", "m", "m:old"]
    assert f"log {JUDGE_SET}" in events
    assert first.candidate.rules.eval_set_sha256 == first.judge_set.sha256 == first.base.rules.eval_set_sha256
    assert first.candidate.conditions == SETTINGS.conditions
    assert first.recalled == ()
    again = play(context)
    assert endpoint.played == ["m:new", "m", "m:old", "m:new"]
    assert again == first.model_copy(update={"recalled": ("m", "m:old")})
    assert "(m, m:old recalled)" in again.in_words()


OTHER = {
    "the base's weights": {"contest": CONTEST.model_copy(update={"base": model("m", "other")})},
    "mazes": {"num": 9},
    "concurrency": {"settings": SETTINGS.model_copy(update={"play": PlaySettings(num_concurrent=16)})},
    "batch limit": {"settings": SETTINGS.model_copy(update={"server": SERVER.model_copy(update={"max_num_seqs": 8})})},
    "dtype": {"settings": SETTINGS.model_copy(update={"server": SERVER.model_copy(update={"dtype": "bfloat16"})})},
    "software": {"settings": SETTINGS.model_copy(update={"software": "sha256:t"})},
    "turns": {"settings": SETTINGS.model_copy(update={"data": DATA.model_copy(update={"max_turns": 9})})},
}


@pytest.mark.parametrize("what", sorted(OTHER))
def test_whatever_could_change_a_result_has_it_played_again(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    endpoint, (context, _) = Endpoint(monkeypatch), recording()
    play(context)
    endpoint.played.clear()
    assert "m" not in play(context, **OTHER[what]).recalled
    assert "m" in endpoint.played


@pytest.mark.parametrize("kept", ["{}", "not JSON", TrackingUnavailable("MLflow is away")])
def test_what_cannot_be_read_is_played_again(monkeypatch: pytest.MonkeyPatch, kept: str | Exception) -> None:
    endpoint, (context, _) = Endpoint(monkeypatch), recording()

    def read(path: str) -> str:
        if isinstance(kept, Exception):
            raise kept
        return kept

    monkeypatch.setattr(context.run, "read", read)
    assert play(context).recalled == ()
    assert endpoint.played == ["m:new", "m", "m:old"]


def test_weights_that_nobody_knows_are_never_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, (context, _) = Endpoint(monkeypatch), recording()
    unknown = CONTEST.model_copy(update={"base": model("m", ""), "champion": None})
    play(context, contest=unknown)
    assert play(context, contest=unknown).recalled == ()
    assert endpoint.played == ["m:new", "m"] * 2
