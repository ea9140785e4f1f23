"""Players of the evaluation set who make mistakes: by shares, at random, and with a few replies that are no action."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rl.events import Rollouts
from rl.grpo.rollouts.sample import sample
from rl.maze.episode import Episode
from rl.maze.grid import Direction, generate_maze, moved, way_to_target
from rl.maze.prompts import Move, Stop, action_text
from rl.maze.score import EvalReport, Outcome, make_report
from rl.settings import MazeSettings
from tasks.evidence.replays import Player
from tests.unit.samples import RULES, SEEDS

GAME = RULES.model_copy(update={"maze": MazeSettings(height=7, width=9), "max_turns": 12})
ODD_REPLIES = (
    "</script><script>document.title = 'broken in'</script><img src=x onerror=\"document.title = 'broken in'\">",
    "I think the target is below me.\nLet me look again & decide: <b>down</b> \u2028 it is",
    "('move', 7)",
)


def play(seed: int, skill: float, draw: random.Random) -> Episode:
    """One maze, played to its end: the right move so often, else any move, a stop or words."""
    episode = Episode(seed, MazeSettings(height=7, width=9), "tolerant", GAME.max_turns)
    maze = generate_maze(seed, 7, 9)
    way, here, seen = way_to_target(maze), maze.start, episode.start()
    while not seen.done:
        right = Move(way[here]) if here != maze.target else Stop()
        wrong = draw.choice([*map(Move, Direction), Stop(), *ODD_REPLIES])
        action = right if draw.random() < skill else wrong
        seen = episode.step(action if isinstance(action, str) else action_text(action))
        if isinstance(action, Move) and maze.is_free(step := moved(here, action.direction)):
            here = step
    return episode


def player(name: str, step: int, skill: float) -> Player:
    """All mazes of the set, always the same way."""
    draw = random.Random(f"{name}{skill}")
    outcomes = [play(seed, skill, draw).outcome() for seed in SEEDS]
    return Player(name, report_of(step, f"tiny:{name}", outcomes))


def report_of(step: int, model_id: str, outcomes: Sequence[Outcome]) -> EvalReport:
    return make_report(step, GAME, model_id, SEEDS, outcomes)


def players() -> list[Player]:
    return [player("base", 0, 0.75), player("step 16 (in training)", 16, 0.95), player("step 16 (served)", 16, 0.94)]


def training_step(step: int, skill: float, num_mazes: int = 4, num_rollouts: int = 8) -> Rollouts:
    """What is kept of a step: rewarded for the solution, advantages against the group's mean."""
    draw, outcomes, advantages = random.Random(f"training {step}"), list[Outcome](), list[float]()
    for maze in range(num_mazes):
        group = [play(100_000 + num_mazes * step + maze, skill, draw).outcome() for _ in range(num_rollouts)]
        mean = sum(one.solved for one in group) / num_rollouts
        outcomes += group
        advantages += [one.solved - mean for one in group]
    return sample(step, outcomes, [float(one.solved) for one in outcomes], advantages)
