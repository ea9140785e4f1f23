"""What an adapter is asked to prove that it is the trained one."""

from __future__ import annotations

from pydantic import Field

from rl.settings import MazeSettings, Settings


class Questions(Settings):
    """The proof's conversations, the same ones wherever they are made."""

    maze: MazeSettings
    num_probes: int = Field(ge=1)
    """Conversations."""
    max_reply_tokens: int = Field(ge=1)
    """Tokens of one reply, as in training."""


class ProbeJob(Settings):
    """What the job's command line carries."""

    base_dir: str
    adapter_dir: str
    """Folder of the adapter as training exported it."""
    dtype: str
    """float32 or bfloat16."""
    questions: Questions
