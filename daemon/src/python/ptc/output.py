"""The program's stdout and stderr: its own pipes, written through.

Nothing is kept back, so whatever a program printed is with the daemon even when the program is killed a moment later. Text that has no
UTF-8 form (half a surrogate pair) is written as its escape instead of failing.

The daemon sees two pipes and cannot tell which was written first. So before a program writes to the other stream, what it wrote to the
first one has to be read. A daemon that is busy is waited for; one that reads nothing, as its client does not, only for a moment.
"""

import io
import sys
from fcntl import ioctl
from time import monotonic, sleep

FIONREAD = 0x4004667F if sys.platform == "darwin" else 0x541B
TURN_SECONDS = 1


def install():
    """Replace `sys.stdout` and `sys.stderr`."""
    sys.stdout = sys.__stdout__ = _stream(1, "<stdout>")
    sys.stderr = sys.__stderr__ = _stream(2, "<stderr>")


def flush():
    """Hand out what a program may have buffered in a stream it wrapped itself."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass  # The stream is the program's own; its failures are not the outcome.


def written():
    """Whether the program has written anything."""
    return _Pipe.last is not None


class _Pipe(io.FileIO):
    """A raw descriptor that always writes everything, also when a signal interrupts it."""

    last = None

    def write(self, data):
        if _Pipe.last is not self:
            if _Pipe.last is not None:
                _Pipe.last.wait_until_read()
            _Pipe.last = self
        count = super().write(data)
        view = memoryview(data).cast("B")
        while count is not None and count < len(view):
            count += super().write(view[count:]) or 0
        return count

    def wait_until_read(self):
        deadline = monotonic() + TURN_SECONDS
        try:
            while any(ioctl(self.fileno(), FIONREAD, bytes(4))) and monotonic() < deadline:
                sleep(0.0002)
        except (OSError, ValueError):
            pass  # No pipe any more: the program closed or replaced it.


def _stream(fd, name):
    raw = _Pipe(fd, "wb", closefd=False)
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True)
    stream.mode = "w"
    raw.name = name
    return stream
