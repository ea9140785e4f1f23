"""What ended a training, in words: Ray hands errors on in wrappers of its own, with addresses that nobody asks for."""

from __future__ import annotations

_OF_RAY = ("actor_id:", "namespace:", "ip:")
"""Lines that Ray adds to the death of an actor, beside its class and its process."""


def root_of(error: BaseException) -> BaseException:
    """The error itself, or what a task or an actor of Ray's raised where it was carried out."""
    cause = getattr(error, "cause", None)
    return root_of(cause) if isinstance(cause, BaseException) else error


def words_of(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_OF_RAY))


def in_one_line(error: BaseException) -> str:
    """``ActorDiedError: The actor died ... class_name: PolicyWorker pid: 7 ...``: kind and words of what came first."""
    root = root_of(error)
    words = words_of(root)
    return f"{type(root).__name__}: {words}" if words else type(root).__name__
