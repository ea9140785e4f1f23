"""What a builder is sent: exactly the listed files, as the same bytes each time, under a name made of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ImageBuildFailed

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip can hold."""


@dataclass(frozen=True)
class ContextFile:
    path: str
    """Below the context, with slashes."""
    mode: int
    """0o644 or 0o755, as git keeps it: the rest of a mode is the umask of whoever checked out."""
    data: bytes


@dataclass(frozen=True)
class BuildContext:
    """Files sorted by path."""

    files: tuple[ContextFile, ...]

    def digest(self, target: str, build_args: Mapping[str, str], platform: str) -> str:
        """64 hex digits over everything that decides what is built."""
        over = hashlib.sha256()
        entries: list[object] = [[target, dict(build_args), platform]]
        entries += [[file.path, file.mode, hashlib.sha256(file.data).hexdigest()] for file in self.files]
        for entry in entries:
            over.update(json.dumps(entry, sort_keys=True).encode() + b"\n")
        return over.hexdigest()

    def tar(self) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for file in self.files:
                entry = tarfile.TarInfo(file.path)
                entry.mode, entry.size = file.mode, len(file.data)
                archive.addfile(entry, io.BytesIO(file.data))
        return packed.getvalue()

    def zip(self) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in self.files:
                entry = zipfile.ZipInfo(file.path, EPOCH)
                entry.create_system, entry.external_attr = 3, (0o100000 | file.mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.data)
        return packed.getvalue()


def collect(root: Path, patterns: Sequence[str]) -> BuildContext:
    """The files below ``root`` that match; raises ImageBuildFailed for a pattern that matches none, and for links."""
    found: dict[str, ContextFile] = {}
    for pattern in patterns:
        paths = [path for path in root.glob(pattern) if path.is_symlink() or path.is_file()]
        if not paths:
            raise ImageBuildFailed(f"no file below {root} matches {pattern}; correct image.images.<name>.files")
        for path in paths:
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                raise ImageBuildFailed(f"{name} is a link, whose target the image would miss; list the file itself")
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found[name] = ContextFile(name, mode, path.read_bytes())
    return BuildContext(tuple(found[name] for name in sorted(found)))
