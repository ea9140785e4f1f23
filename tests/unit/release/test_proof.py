"""The proof: every way in which an endpoint can serve something else is a named failure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rl.events import Probed
from rl.maze.score import EvalReport, Outcome
from rl.proof.questions import probe_conversations
from rl.proof.settings import Questions
from rl.settings import MazeSettings
from tasks.records import Certificate, PublishedAdapter, ServedEndpoint, ServingSide, TrainingSide
from tasks.release.openai_chat import Reply
from tasks.release.proof import Heard, weigh
from tasks.release.settings import ProofSettings
from tests.unit.samples import RULES

SETTINGS = ProofSettings(num_probes=2, max_logprob_difference=0.01)
ADAPTER = PublishedAdapter(name="a", uri="s3://m/a", sha256="0" * 64, step=6, model_id="tiny:a")
ENDPOINT = ServedEndpoint(url="http://llm", base_model_id="tiny", deployed=False)
QUESTIONS = Questions(maze=MazeSettings(), num_probes=2, max_reply_tokens=8)
TRAINED = tuple(Probed(number=n, text="('move', 0)", logprobs=(-0.1, -0.2, -0.3)) for n in range(2))
SERVED = [Reply("tiny:a", "('move', 0)", (-0.1001, -0.2, -0.3)) for _ in range(2)]
BASE = [Reply("tiny", "('move', 0)", (-0.5, -0.2, -0.3)), Reply("tiny", "('move', 1)", (-0.5, -0.2))]


def report(num_solved: int) -> EvalReport:
    outcomes = tuple(Outcome(seed=s, solved=s < num_solved, actions="S", unparsable_replies=0) for s in range(64))
    return EvalReport(step=6, rules=RULES, model_id="m", outcomes=outcomes)


def proof(
    served: list[Reply] = SERVED, base: list[Reply] = BASE, listed: bool = True, endpoint_solved: int = 40
) -> Certificate:
    trained = TrainingSide(evaluation=report(40), questions=QUESTIONS, answers=TRAINED)
    serving = ServingSide(adapter=ADAPTER, endpoint=ENDPOINT, evaluation=report(endpoint_solved))
    return weigh(SETTINGS, trained, serving, Heard(served, base, listed))


def test_the_trained_adapter_under_its_name_is_certified() -> None:
    found = proof()
    assert found.holds
    assert (found.num_different_from_base, found.num_equal_replies) == (2, 2)
    assert found.max_logprob_difference == pytest.approx(0.0001)


def test_the_base_answering_under_the_adapter_s_name_is_caught() -> None:
    found = proof(served=[replace(reply, model="tiny:a") for reply in BASE])
    assert not found.holds
    assert any("the base answers under the name tiny:a" in failure for failure in found.failures)
    assert any("other weights are served" in failure for failure in found.failures)


def test_another_step_s_weights_are_caught_by_their_log_probabilities() -> None:
    found = proof(served=[replace(reply, token_logprobs=(-0.15, -0.2, -0.3)) for reply in SERVED])
    assert found.failures == (
        "log-probabilities differ by 0.05 from the trained adapter's, at most 0.01 was wanted: other weights are "
        "served",
    )


def test_another_model_in_the_reply_is_caught() -> None:
    found = proof(served=[SERVED[0], replace(SERVED[1], model="tiny")])
    assert any("tiny, tiny:a answered in place of tiny:a" in failure for failure in found.failures)


def test_a_certificate_survives_being_stored_when_no_reply_is_equal() -> None:
    found = proof(served=[replace(reply, text="?") for reply in SERVED])
    assert (found.num_equal_replies, found.max_logprob_difference, found.holds) == (0, None, False)
    assert Certificate.model_validate_json(found.model_dump_json()) == found


def test_an_adapter_that_is_not_listed_is_not_certified() -> None:
    assert proof(listed=False).failures == ("tiny:a is not listed by the endpoint",)


@pytest.mark.parametrize(("endpoint_solved", "holds"), [(40, True), (37, True), (33, True), (32, False)])
def test_the_endpoint_s_mazes_must_agree_with_training_as_far_as_sampling_allows(
    endpoint_solved: int, holds: bool
) -> None:
    assert proof(endpoint_solved=endpoint_solved).holds is holds


def test_probe_conversations_are_the_same_wherever_they_are_made() -> None:
    questions = QUESTIONS.model_copy(update={"num_probes": 5})
    first, again = list(probe_conversations(questions)), list(probe_conversations(questions))
    assert first == again
    assert [len(messages) for messages in first] == [1, 3, 5, 7, 1]
