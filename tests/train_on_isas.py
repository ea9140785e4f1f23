"""The train tests as other processors would run them: ``make test-isa``.

Each setting takes away instructions that this processor has, from everything that multiplies: torch's own kernels, MKL
and oneDNN. MKL obeys MKL_ENABLE_INSTRUCTIONS on Intel's processors only; MKL_CBWR=COMPATIBLE on all of them. On a
processor without AVX-512 the last two settings are alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "default": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "as it is": {},
}
NAMES = {name for setting in SETTINGS.values() for name in setting}
"""Variables that no setting takes from the caller."""
THREADS = (1, 2)


def counted(report: Path) -> tuple[int, int]:
    """Tests passed and failed; what broke before or after its test has failed. Without a report, one failure."""
    if not report.exists():
        return 0, 1
    suite = ElementTree.parse(report).getroot()[0]
    total, failures, errors, skipped = (int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped"))
    return total - failures - errors - skipped, failures + errors


def run(setting: str, num_threads: int, arguments: list[str]) -> bool:
    """Run the tests, print a line of the table, and the end of their output where they failed."""
    kept = {name: value for name, value in os.environ.items() if name not in NAMES}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(num_threads))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "tests/train", f"--junit-xml={report}", *arguments]
        env = {**kept, **threads, **SETTINGS[setting]}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        passed, failed = counted(report)
    line = f"{setting:<9} {num_threads:>7} {passed:>7} {failed:>7} {time.monotonic() - started:>8.0f}"
    print(line, flush=True)
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], flush=True)
    return done.returncode == 0


def main(arguments: list[str]) -> None:
    """Arguments are pytest's."""
    print(f"{'setting':<9} {'threads':>7} {'passed':>7} {'failed':>7} {'seconds':>8}", flush=True)
    well = [run(setting, num_threads, arguments) for setting in SETTINGS for num_threads in THREADS]
    sys.exit(0 if all(well) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
