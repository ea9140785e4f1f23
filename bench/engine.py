"""SkyRL's vLLM server in a process of its own, without Ray, for measuring rollouts against it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MP = "mp"
IN_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


@contextmanager
def serve(
    model: Path, port: int, log: Path, *, executor: str, worker: str | None, env: dict[str, str]
) -> Iterator[str]:
    """Start the server with the rehearsal's engine arguments; yields its address when it is healthy."""
    arguments = {
        "model": str(model),
        "host": "127.0.0.1",
        "port": str(port),
        "dtype": "float32",
        "max-model-len": "2048",
        "max-num-seqs": "64",
        "max-num-batched-tokens": "8192",
        "max-lora-rank": "32",
        "max-loras": "1",
        "limit-mm-per-prompt": '{"image": 15, "video": 0}',
        "distributed-executor-backend": executor,
        "mm-processor-cache-gb": "0",
        "uvicorn-log-level": "warning",
    } | ({"worker-cls": worker} if worker else {})
    flags = ["--enforce-eager", "--enable-lora", "--enable-prefix-caching", "--no-enable-log-requests"]
    module = "skyrl.backends.skyrl_train.inference_servers.vllm_server_actor"
    command = [sys.executable, "-m", module, *(f"--{key}={value}" for key, value in arguments.items()), *flags]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        address = f"http://127.0.0.1:{port}"
        while not _healthy(address):
            if process.poll() is not None:
                raise RuntimeError(f"the engine ended with {process.returncode}; see {log}")
            time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False
