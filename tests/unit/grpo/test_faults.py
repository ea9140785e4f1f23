"""What ended a training, in words. The texts are Ray 2.57's (python/ray/exceptions.py)."""

from __future__ import annotations

from ray.exceptions import ActorDiedError, RayTaskError

from rl.grpo.faults import in_one_line, root_of

DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: length_grouped.<locals>.LengthGroupedPolicyWorker
\tactor_id: 324509ab35ba38b3f751da1b05000000
\tpid: 10559
\tnamespace: 97373286-2246-420d-8a4c-5233c1a04d10
\tip: 127.0.0.1
The actor is dead because its worker process has died."""


def test_a_dead_actor_is_named_by_its_class_and_its_process() -> None:
    error = ActorDiedError()
    error.error_msg = DIED
    assert in_one_line(error) == (
        "ActorDiedError: The actor died unexpectedly before finishing this task. class_name: "
        "length_grouped.<locals>.LengthGroupedPolicyWorker pid: 10559 The actor is dead because its worker process has "
        "died."
    )


def test_what_a_task_raised_is_told_and_not_its_wrapper() -> None:
    raised = ValueError("max_model_len is too small")
    error = RayTaskError("VLLMServerActor.start", "Traceback ...", raised).as_instanceof_cause()
    assert root_of(error) is raised
    assert in_one_line(error) == "ValueError: max_model_len is too small"
    assert in_one_line(RuntimeError()) == "RuntimeError"
