"""Records that several test files need."""

from __future__ import annotations

from serving.settings import ServerSettings
from tasks.records import Certificate, MazesRef, PublishedAdapter

SERVER = ServerSettings(
    base_model_id="tiny",
    model_source="/models/tiny",
    adapters_uri="s3://models/adapters/tiny",
    device="cpu",
    dtype="float32",
    max_model_len=2048,
    max_images=15,
    max_lora_rank=32,
)

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
