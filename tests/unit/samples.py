"""Records that several test files need."""

from __future__ import annotations

from pathlib import Path

from rl.maze.eval_set import load_eval_set
from rl.maze.grid import generate_maze, shortest_path
from rl.maze.score import GREEDY, MOVE_LETTERS, EvalReport, EvalRules, Outcome
from rl.settings import MazeSettings
from serving.settings import DoorSettings, ServerSettings
from tasks.records import Certificate, ExportRef, MazesRef, PublishedAdapter, TrainedRun

DOOR = DoorSettings(max_image_pixels=4_194_304, max_image_mb=8, max_request_mb=32)
SERVER = ServerSettings(
    base_model_id="tiny",
    model_source="/models/tiny",
    adapters_uri="s3://models/adapters/tiny",
    device="cpu",
    dtype="float32",
    max_model_len=2048,
    max_images=15,
    door=DOOR,
    max_lora_rank=32,
)

RULES = EvalRules(
    eval_set_sha256="e" * 64,
    maze=MazeSettings(),
    max_turns=15,
    parsing="tolerant",
    max_reply_tokens=8,
    temperature=GREEDY,
)

OTHER_RULES = {
    "eval_set_sha256": "f" * 64,
    "maze": MazeSettings(cell_px=16),
    "max_turns": 10,
    "parsing": "strict",
    "max_reply_tokens": 16,
    "temperature": 0.7,
}
"""Another value for each of the rules."""


def by_other_rules(report: EvalReport, name: str) -> EvalReport:
    """The same outcomes, had the maze been played by another of the rules."""
    return report.model_copy(update={"rules": report.rules.model_copy(update={name: OTHER_RULES[name]})})


MAZES = MazesRef(
    height=7,
    width=9,
    eval_sha256="e",
    num_eval_mazes=64,
    ceiling=64,
    train_sha256="t",
    num_train_mazes=8,
    train_ceiling=8,
)


def certificate_of(adapter: PublishedAdapter, *failures: str) -> Certificate:
    """A certificate that holds unless failures are named."""
    return Certificate(
        adapter=adapter,
        listed=True,
        num_probes=8,
        num_different_from_base=8,
        num_equal_replies=8,
        max_logprob_difference=0.001,
        training_solved=40,
        endpoint_solved=40,
        agreement_p_value=1.0,
        failures=failures,
    )


SEEDS = [maze.seed for maze in load_eval_set(Path("rl/eval_sets/maze_2d_7x9.json")).mazes]


def walk(seed: int, solved: bool) -> Outcome:
    """The shortest way to the target, or a few steps into nowhere."""
    letters = "".join(MOVE_LETTERS[move] for move in shortest_path(generate_maze(seed, 7, 9)))
    return Outcome(seed=seed, solved=solved, actions=letters + "S" if solved else "RRULS", unparsable_replies=0)


def report(step: int, num_solved: int) -> EvalReport:
    """The evaluation set with its first ``num_solved`` mazes solved."""
    outcomes = tuple(walk(seed, index < num_solved) for index, seed in enumerate(SEEDS))
    return EvalReport(step=step, rules=RULES, model_id="m", outcomes=outcomes)


def trained(solved: dict[int, int], exported: list[int]) -> TrainedRun:
    """A run with these evaluations (step -> mazes solved) and exports."""
    exports = tuple(ExportRef(step=step, path=f"/exports/{step}", sha256={}) for step in exported)
    evaluations = tuple(report(step, number) for step, number in sorted(solved.items()))
    return TrainedRun(
        run_name="r",
        submission_id="r-train-1",
        attempt=1,
        mazes=MAZES,
        model_path="/models/tiny",
        dtype="float32",
        resumed_from_step=0,
        last_step=max(solved),
        evaluations=evaluations,
        exports=exports,
        checkpoint_steps=(),
    )
