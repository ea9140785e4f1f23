"""A job's output as clean UTF-8, whoever writes it: Ray ends a log's stream at the first byte that is not.

``clean_output`` puts a small process of its own behind standard output and standard error. The job keeps its process
id, its exit status and its signals; children inherit the way. The small process ends with the last that can write, so
nothing is lost when the job is killed, or ends in native code.
"""

from __future__ import annotations

import codecs
import contextlib
import faulthandler
import fcntl
import os
import signal
import subprocess
import sys

PIPE_SIZE_BYTES = 1 << 20
"""As much as Linux gives an ordinary user: an event goes in at once, so no other writer gets into it."""
_STDOUT, _STDERR = 1, 2


def clean_output() -> None:
    """From here on, what this process and its children print passes through a process that makes it UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    read_end, write_end = os.pipe()
    # Refused to a user who has many pipes already: the usual 64 KiB do, too.
    with contextlib.suppress(PermissionError):
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_SIZE_BYTES)
    subprocess.Popen([sys.executable, "-I", "-S", __file__], stdin=read_end, start_new_session=True)
    os.close(read_end)
    for descriptor in (_STDOUT, _STDERR):
        os.dup2(write_end, descriptor)
    os.close(write_end)


def tell_stacks_at_stop() -> None:
    """Whoever stops this process (SIGTERM: Ray, a pod's end) has the stacks of all its threads printed first, also
    where it hangs in a call. To be asked after ``ray.init``, which has a way of its own to end: that follows."""
    faulthandler.register(signal.SIGTERM, all_threads=True, chain=True)


def relay(source: int, sink: int) -> None:
    """Copy until the last writer is gone; bytes that are no UTF-8 become ``\\xff`` in four characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    while data := os.read(source, PIPE_SIZE_BYTES):
        _write_all(sink, decoder.decode(data).encode())
    _write_all(sink, decoder.decode(b"", final=True).encode())


def _write_all(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]


if __name__ == "__main__":
    # Ray stops a job with all its processes; what they say while they end is still to be written.
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    relay(0, _STDOUT)
