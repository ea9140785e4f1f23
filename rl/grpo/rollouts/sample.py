"""Which of a step's episodes are kept to be read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rl.events import Rollout, Rollouts
from rl.maze.score import Outcome, fewer_words

NUM_GROUPS = 2
MAX_WORDS = 16_000
"""Characters of replies that a step keeps: an event is a line of the job's log."""
MAX_ROLLOUTS = 32
"""Episodes that a step keeps; of large groups the first ones."""


def sample(
    step: int, outcomes: Sequence[Outcome], rewards: Sequence[float], advantages: Sequence[float | None]
) -> Rollouts:
    """The first maze whose rollouts ended in both ways and the first whose did not, else the first two.

    The one teaches, of the other nothing is learned. Raises ValueError where the three are not of the same episodes.
    """
    groups: dict[int, list[int]] = {}
    for number, outcome in enumerate(outcomes):
        groups.setdefault(outcome.seed, []).append(number)
    kept = [number for seed in _telling(groups, outcomes) for number in groups[seed][: MAX_ROLLOUTS // NUM_GROUPS]]
    episodes = list(zip(outcomes, rewards, advantages, strict=True))
    words = fewer_words((outcomes[number] for number in kept), MAX_WORDS)
    found = [
        Rollout(outcome=outcome, reward=episodes[number][1], advantage=episodes[number][2])
        for number, outcome in zip(kept, words, strict=True)
    ]
    return Rollouts(step=step, rollouts=tuple(found))


def _telling(groups: dict[int, list[int]], outcomes: Sequence[Outcome]) -> list[int]:
    mixed = {seed: len({outcomes[number].solved for number in numbers}) > 1 for seed, numbers in groups.items()}
    first = [next((seed for seed in groups if mixed[seed] is wanted), None) for wanted in (True, False)]
    chosen = [seed for seed in first if seed is not None]
    return [*chosen, *(seed for seed in groups if seed not in chosen)][:NUM_GROUPS]
