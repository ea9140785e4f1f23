"""A terminal that is read back: what stands on it after the bytes that a program wrote.

Knows what `man console_codes` has of what rich writes, wraps at its width as xterm does, and refuses any other
control character: in a real terminal it would be left on the screen or do something.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable, Sequence

_SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")


class Terminal:
    """``lines`` is all that was written, scrolled out of view or not."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height, self.shows_cursor = width, height, True
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._rows]

    def write(self, text: str) -> None:
        text, self._rest = self._rest + text, ""
        place = 0
        while place < len(text):
            if text[place] == "\x1b":
                found = _SEQUENCE.match(text, place)
                if found is None:
                    assert len(text) - place < 12, f"no sequence that rich writes: {text[place : place + 12]!r}"
                    self._rest = text[place:]
                    return
                self._obey(*found.groups())
                place = found.end()
            else:
                self._put(text[place])
                place += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._down()
        elif character != "\x07":
            assert character.isprintable(), f"{character!r} is left on the screen"
            if self._column == self.width:
                self._column = 0
                self._down()
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = character
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _obey(self, private: str, numbers: str, letter: str) -> None:
        number = int(numbers or 1) if ";" not in numbers else 0
        match private + letter:
            case "m":
                pass
            case "A":
                self._row = max(self._row - number, len(self._rows) - self.height, 0)
            case "K":
                assert numbers == "2"
                self._rows[self._row] = []
            case "?h" | "?l":
                assert numbers == "25"
                self.shows_cursor = letter == "h"
            case _:
                raise AssertionError(f"ESC [ {private}{numbers}{letter} is not known here")


class Program:
    """A program that has a terminal of its own, as one that somebody typed."""

    def __init__(self, argv: Sequence[str], width: int = 100, height: int = 30) -> None:
        self.terminal, self.seen = Terminal(width, height), list[list[str]]()
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            # Not before it is as large as it is to be.
            os.read(0, 1)
            os.execv(argv[0], [*argv])
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        settings = termios.tcgetattr(self._side)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self._side, termios.TCSANOW, settings)
        os.write(self._side, b"\n")
        settings[3] |= termios.ECHO
        self._settings = settings

    def type(self, keys: str) -> None:
        termios.tcsetattr(self._side, termios.TCSANOW, self._settings)
        os.write(self._side, keys.encode())

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._side)

    def read_until(self, holds: Callable[[list[str]], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not holds(self.terminal.lines):
            assert time.monotonic() < deadline, "\n".join(self.terminal.lines)
            if not self._read():
                assert holds(self.terminal.lines), "\n".join(self.terminal.lines)
                return

    def ended(self, timeout_s: float = 30.0) -> int:
        """Read to the end; its exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read():
            assert time.monotonic() < deadline, "\n".join(self.terminal.lines)
        os.close(self._side)
        return self.wait()

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        """What was written meanwhile; False when nobody will write any more."""
        if not select.select([self._side], [], [], 0.2)[0]:
            return True
        try:
            written = os.read(self._side, 65536)
        except OSError:
            return False
        self.terminal.write(written.decode(errors="replace"))
        self.seen.append(self.terminal.lines)
        return bool(written)
