"""Process entry point: a Ray head with dashboard and Jobs API, alive as long as this process.

``ray start --head --block`` would also start the Ray Client server, which nobody here uses and which, when a busy
machine makes it wait 30 s for the raylet, takes the head down with it.
"""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import tempfile
import threading
from typing import Any


def main(argv: list[str]) -> None:
    dashboard_port, num_gpus = int(argv[1]), int(argv[2])
    import ray
    from ray._private.utils import write_ray_address

    _choose_agent_port()
    # Jobs look for "the" cluster of this machine in their head's folder; in the shared one they find any other.
    folder = tempfile.mkdtemp(prefix="ray-")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    context: Any = ray.init(
        # Not whatever cluster an earlier `ray start` left its address for.
        address="local",
        num_cpus=8,
        num_gpus=num_gpus,
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        dashboard_port=dashboard_port,
        object_store_memory=1_000_000_000,
        log_to_driver=False,
        _temp_dir=folder,
    )
    write_ray_address(context.address_info["gcs_address"], folder)
    stopped.wait()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def _choose_agent_port() -> None:
    """Give this head's agent a free port: two heads on one machine both want Ray's default, and `ray.init` has no say.

    The Jobs API goes through the agent; without its port no job can be submitted.
    """
    from ray._private.parameter import RayParams

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    initialise = RayParams.__init__

    def with_agent_port(self: RayParams, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **{"dashboard_agent_listen_port": port, **kwargs})

    RayParams.__init__ = with_agent_port  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv)
