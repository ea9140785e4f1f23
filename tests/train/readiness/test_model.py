"""Which folders are models is transformers' to say: what readiness and the job accept, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl.grpo.job import CannotStart, check_model
from rl.model_files import NoModel, loaded
from rl.readiness.checks import Unready
from rl.readiness.model import load_apart

BASE = Path("rl/models/tiny-qwen3-vl")


def saved_by_transformers_4(folder: Path) -> Path:
    """As VisGym's checkpoint lies on the Hub (saved by transformers 4.57.1): the image processor's configuration in
    ``preprocessor_config.json``, the video's beside it, no ``processor_config.json``."""
    shutil.copytree(BASE, folder)
    found = json.loads((folder / "processor_config.json").read_text())
    (folder / "processor_config.json").unlink()
    image = {**found["image_processor"], "processor_class": found["processor_class"]}
    (folder / "preprocessor_config.json").write_text(json.dumps(image))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(found["video_processor"]))
    return folder


def test_a_processor_is_accepted_under_the_names_of_either_transformers(tmp_path: Path) -> None:
    for folder in (BASE, saved_by_transformers_4(tmp_path / "four")):
        assert loaded(folder) == "Qwen3VLForConditionalGeneration with Qwen3VLProcessor"
        check_model(str(folder))


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        (["config.json"], "no config.json"),
        (["processor_config.json"], "image processor"),
        (["tokenizer.json"], "tokenizer"),
        (["tokenizer.json", "tokenizer_config.json"], "does not know the picture's token"),
        (["chat_template.jinja"], "no chat template"),
    ],
)
def test_a_folder_that_lacks_something_is_refused_before_training(
    tmp_path: Path, lacks: Sequence[str], words: str
) -> None:
    folder = shutil.copytree(BASE, tmp_path / "model")
    for name in lacks:
        (folder / name).unlink()
    with pytest.raises((NoModel, OSError, ValueError), match=words):
        loaded(folder)
    with pytest.raises(CannotStart, match=rf"model folder {folder}: (.|\n)*{words}(.|\n)*point train.model_path"):
        check_model(str(folder))


def test_the_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    folder = saved_by_transformers_4(tmp_path / "four")
    assert load_apart(str(folder), 120, {}).endswith("with Qwen3VLProcessor")
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(Unready, match="image processor"):
        load_apart(str(folder), 120, {})
