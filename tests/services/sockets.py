"""Which processes a service consists of, and where they wait for somebody."""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psutil


def family(pid: int) -> list[psutil.Process]:
    """The service's process, what it started, and what of its session has lost its parent."""
    found = {process.pid: process for process in psutil.Process(pid).children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == pid:
                found[process.pid] = process
        except ProcessLookupError:
            continue
    return list(found.values())


def sockets(pid: int) -> list[tuple[str, str, int]]:
    """(program, address, port) of everything that waits for somebody, TCP and UDP."""
    found = []
    for process in family(pid):
        try:
            name, connections = process.name(), process.net_connections("inet")
        except psutil.NoSuchProcess:
            continue
        for one in connections:
            if one.laddr and not one.raddr and one.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                found.append((name, one.laddr.ip, one.laddr.port))
    return found


def is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback


@contextmanager
def open_doors(pids: Sequence[int], every_s: float = 3.0) -> Iterator[set[tuple[str, str, int]]]:
    """What is seen open to other machines meanwhile."""
    seen: set[tuple[str, str, int]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(every_s):
            for pid in pids:
                seen.update(one for one in sockets(pid) if not is_loopback(one[1]))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()
