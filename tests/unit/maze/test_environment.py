"""The Gymnasium environment and its pictures."""

from __future__ import annotations

import io

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rl.maze.environment import Maze2DEnv, register_maze_2d
from rl.maze.grid import Direction, generate_maze, shortest_path
from rl.maze.pictures import Drawing, png_bytes, read_grid, render
from rl.maze.prompts import Move, action_text


@given(st.integers(0, 10_000), st.sampled_from([8, 16, 25]), st.data())
@settings(max_examples=50)
def test_a_picture_reads_back_to_the_same_grid(seed: int, cell_px: int, data: st.DataObject) -> None:
    maze = generate_maze(seed, 7, 9)
    free = [(r, c) for r in range(7) for c in range(9) if maze.is_free((r, c))]
    agent = data.draw(st.sampled_from(free))
    wall_HW, seen_agent, seen_target = read_grid(render(maze, agent, cell_px), cell_px)
    assert (wall_HW == maze.wall_HW).all()
    assert seen_agent == agent
    assert seen_target == maze.target


@given(st.integers(0, 10_000), st.sampled_from([3, 8, 13, 25]), st.sampled_from([(5, 5), (7, 9), (9, 11)]), st.data())
@settings(max_examples=100)
def test_the_environment_s_own_png_is_its_picture_to_the_pixel(
    seed: int, cell_px: int, size: tuple[int, int], data: st.DataObject
) -> None:
    maze = generate_maze(seed, *size)
    agent = data.draw(st.tuples(st.integers(0, size[0] - 1), st.integers(0, size[1] - 1)))
    drawing = Drawing(maze, cell_px)
    with Image.open(io.BytesIO(drawing.png(agent))) as decoded:
        assert (decoded.format, decoded.mode) == ("PNG", "P")
        assert (np.asarray(decoded.convert("RGB")) == drawing.rgb(agent)).all()


def test_pictures_have_visgyms_size_and_colours() -> None:
    image = render(generate_maze(0, 9, 9), (1, 1), 25)
    assert image.shape == (225, 225, 3)
    colours = {tuple(int(channel) for channel in pixel) for pixel in image.reshape(-1, 3)}
    assert colours == {(255, 255, 255), (169, 169, 169), (255, 0, 0), (0, 0, 255)}
    assert png_bytes(image).startswith(b"\x89PNG")


def play(env: Maze2DEnv, actions: list[str]) -> list[tuple[float, bool, str]]:
    return [(reward, done, info["env_feedback"]) for _, reward, done, _, info in map(env.step, actions)]


def test_only_a_stop_on_the_target_is_paid() -> None:
    env = Maze2DEnv(7, 9, 8)
    env.reset(seed=5)
    walk = [action_text(Move(direction)) for direction in shortest_path(env.maze)]
    steps = play(env, walk)
    assert {reward for reward, _, _ in steps} == {0.0}
    assert not any(done for _, done, _ in steps)
    assert play(env, ["('stop', 'stop')"]) == [(1.0, True, "Action executed successfully.")]


def test_a_stop_elsewhere_ends_the_episode_unpaid() -> None:
    env = Maze2DEnv(7, 9, 8)
    env.reset(seed=5)
    assert play(env, ["('stop', 'stop')"]) == [(0.0, True, "Action executed successfully.")]


def test_a_wall_and_a_reply_without_action_leave_the_agent_where_it_is() -> None:
    env = Maze2DEnv(7, 9, 8)
    before, _ = env.reset(seed=5)
    blocked = next(d for d in Direction if d not in [direction for direction, _ in env.maze.neighbours(env.maze.start)])
    (wall, garbage) = play(env, [action_text(Move(blocked)), "hello"])
    assert wall == (0.0, False, "Cannot move into a wall.")
    assert garbage[2].startswith("The reply is not a Python tuple.")
    assert np.array_equal(env.render(), before)


def test_gymnasium_accepts_the_environment() -> None:
    register_maze_2d()
    register_maze_2d()
    check_env(gymnasium.make("maze_2d", maze_height=7, maze_width=7, cell_px=8).unwrapped, skip_render_check=True)


def test_looking_at_a_maze_before_reset_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="call reset"):
        Maze2DEnv(7, 7, 8).render()
