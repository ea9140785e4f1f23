"""Watch one maze being played through the endpoint: ``maze-retrain chat``.

Prints every turn and writes them as an animated picture. Address, maze and turn limit are those of evaluate/local.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from flows.deployments import load_settings
from rl.maze.episode import Seen
from rl.maze.run_mazes import prepare_mazes
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


def watch_one(model: str, seed: int | None, gif: Path) -> bool:
    """The same with the deployment's values where none are given; raises EndpointFailed."""
    settings = load_settings("evaluate/local", {})
    if seed is None:
        seed = prepare_mazes(settings.data).eval_set.mazes[0].seed
    return watch(settings, model or settings.model_id, seed, gif)
