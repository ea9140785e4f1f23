"""Process entry point: one more node of a Ray cluster, alive as long as this process (training environment).

``ray start`` can't be used for several nodes of one machine at a time: they would take the same socket names.
"""

from __future__ import annotations

import json
import signal
import sys
import threading


def main(argv: list[str]) -> None:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    params = RayParams(
        # Ports of workers: any that is free.
        min_worker_port=0,
        max_worker_port=0,
        node_manager_port=0,
        **json.loads(argv[1]),
    )
    node = Node(params, head=False, shutdown_at_exit=False, spawn_reaper=False)
    stopped.wait()
    node.kill_all_processes(check_alive=False, allow_graceful=True)


if __name__ == "__main__":
    main(sys.argv)
