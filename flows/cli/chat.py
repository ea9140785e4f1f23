"""Watch one maze being played through the endpoint: ``python -m flows.cli.chat [--model ID] [--seed N] [--gif FILE]``.

Prints every turn and writes them as an animated picture. Address, maze and turn limit are those of evaluate/local.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from flows.deployments import load_settings
from rl.maze.episode import Seen
from rl.maze.run_mazes import prepare_mazes
from tasks.errors import StageError
from tasks.release.evaluate import play_maze
from tasks.release.openai_chat import ChatEndpoint

_SCALE, _CAPTION_PX, _FRAME_MS = 5, 30, 600


def frame(seen: Seen, caption: str) -> Image.Image:
    """The picture as the agent sees it, enlarged, over one line of text."""
    picture = Image.fromarray(seen.image)
    picture = picture.resize((picture.width * _SCALE, picture.height * _SCALE), Image.Resampling.NEAREST)
    canvas = Image.new("RGB", (picture.width, picture.height + _CAPTION_PX), "white")
    canvas.paste(picture, (0, 0))
    ImageDraw.Draw(canvas).text((8, picture.height + 8), caption, fill="black")
    return canvas


def watch(settings: Any, model: str, seed: int, gif: Path) -> bool:
    """Play, print, draw; returns whether the maze was solved."""
    frames: list[Image.Image] = []

    def show(seen: Seen, reply: str) -> None:
        text = f"turn {len(frames) + 1}: {reply}" if reply else ("solved" if seen.reward == 1.0 else "not solved")
        print(text)
        frames.append(frame(seen, text))

    with ChatEndpoint(settings.url) as endpoint:
        played = play_maze(endpoint, model, seed, settings.data, settings.play.max_reply_tokens, show)
    outcome = played.outcome
    gif.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(gif, save_all=True, append_images=frames[1:], duration=_FRAME_MS, loop=0)
    print(f"{model}, maze {seed}: {'solved' if outcome.solved else 'not solved'}; {gif}")
    return outcome.solved


def main(argv: list[str]) -> int:
    settings = load_settings("evaluate/local", {})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=settings.model_id, help="as /v1/models lists it (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="the maze (default: the first of the evaluation set)")
    parser.add_argument("--gif", type=Path, default=Path(".local/chat.gif"), help="default: %(default)s")
    given = parser.parse_args(argv[1:])
    seed = prepare_mazes(settings.data).eval_set.mazes[0].seed if given.seed is None else given.seed
    try:
        watch(settings, given.model, seed, given.gif)
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
