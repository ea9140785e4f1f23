"""What a stage found reads as a few words, never as a record's own text."""

from __future__ import annotations

import pytest

from tasks.records import ChampionChange, ClusterRef, ImageRef, PublishedAdapter, Record, ServedEndpoint, in_words
from tasks.settings import JobSettings
from tests.unit.samples import MAZES, certificate_of, report, trained

ADAPTER = PublishedAdapter(name="r-step-4", uri="s3://m/r", sha256="abcdef0123456789", step=4, model_id="tiny:r-step-4")
JOB = JobSettings(project_dir="/p", python="/p/python")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (MAZES, "8 mazes to train on, 64 to evaluate on (64 of them can be solved)"),
        (ClusterRef(jobs_address="a", ray_version="2.57.0", num_gpus=2.0, job=JOB), "Ray 2.57.0, 2 GPUs"),
        (
            ClusterRef(jobs_address="a", ray_version="2.57.0", num_gpus=2.0, job=JOB, own_job="r-train-1"),
            "Ray 2.57.0, 2 GPUs, r-train-1 goes on",
        ),
        (trained({0: 33, 4: 49}, [4]), "4 steps, the last evaluation solved 49 of 64"),
        (ADAPTER, "r-step-4, abcdef012345"),
        (ServedEndpoint(url="http://e", base_model_id="tiny", deployed=False), "http://e was running already"),
        (certificate_of(ADAPTER), "8 of 8 replies are the trained adapter's"),
        (certificate_of(ADAPTER, "other weights are served"), "it does not hold: other weights are served"),
        (ChampionChange(champion="b", previous="a"), "b is champion, a was it before"),
        (report(4, 49), "49 of 64 mazes solved"),
        ({"train": ImageRef(uri="u", sha256="0123456789abcdef")}, "train 0123456789ab"),
        (None, ""),
        ({}, ""),
        ({"anything": 1}, ""),
    ],
)
def test_a_stage_s_result_in_a_few_words(found: object, words: str) -> None:
    assert in_words(found) == words


def test_a_record_without_words_of_its_own_says_nothing() -> None:
    class Bare(Record):
        x: int

    assert in_words(Bare(x=1)) == ""
