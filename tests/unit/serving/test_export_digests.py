"""What is published is what training exported, byte by byte. Real files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from serving.publish import ExportChanged, check_unchanged


@pytest.mark.parametrize(
    ("content", "said"), [(b"xx", "model is [0-9a-f]{12}, was"), (b"", "model is e3b0c44298fc, was")]
)
def test_an_export_that_is_not_what_training_told_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "model").write_bytes(b"x" * 40)
    told = {"model": hashlib.sha256(b"x" * 40).hexdigest()}
    check_unchanged(tmp_path, told)
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(ExportChanged, match=said):
        check_unchanged(tmp_path, told)


def test_an_export_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportChanged, match="model is gone, was abcdef"):
        check_unchanged(tmp_path, {"model": "abcdef"})
