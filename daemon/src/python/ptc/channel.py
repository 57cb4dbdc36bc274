"""The channel to the daemon: frames of JSON on one socket, shared by all event loops and threads of a program.

A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON. There is no reader thread: each event loop that makes a call
watches the descriptor, and whichever wakes first reads what is there and hands every reply to the loop that waits for it. So calls
work from the program's main loop, from a nested `asyncio.run()` and from threads with loops of their own, all at the same time.

Only `read` and `write` are used on the descriptor; the sandbox refuses most of the socket calls.
"""

import asyncio
import io
import itertools
import json
import os
import re
import select
import threading
import weakref

CHUNK_BYTES = 65536
MAX_FRAME_BYTES = 16 * 1024 * 1024

# Programs may replace the module's functions; the channel keeps the real ones.
_loads, _dumps = json.loads, json.dumps


class ChannelClosed(Exception):
    """The daemon has gone; nothing can be sent or will be answered."""


class FrameReader:
    """Cuts a byte stream into frames. A large body is read straight into a buffer of its size, so no byte is copied twice."""

    def __init__(self, raw):
        self._raw = raw
        self._chunk = bytearray(CHUNK_BYTES)
        self._rest = b""
        self._body = None
        self._filled = 0
        self.ended = False

    def read_available(self):
        """The frames that are complete once everything readable without waiting has been read."""
        frames = []
        while not self.ended:
            if self._body is None:
                target = self._chunk
            else:
                target = memoryview(self._body)[self._filled :]
            count = self._raw.readinto(target)
            if count is None:
                break
            if count == 0:
                self.ended = True
            elif self._body is None:
                self._cut(self._rest + self._chunk[:count], frames)
                if count < CHUNK_BYTES and self._body is None:
                    break
            else:
                self._filled += count
                if self._filled == len(self._body):
                    frames.append(self._body)
                    self._body = None
        return frames

    def _cut(self, data, frames):
        start, end = 0, len(data)
        while end - start >= 4:
            size = int.from_bytes(data[start : start + 4], "big")
            have = end - start - 4
            if have < size:
                self._body = bytearray(size)
                self._body[:have] = data[start + 4 :]
                self._filled = have
                start = end
                break
            frames.append(data[start + 4 : start + 4 + size])
            start += 4 + size
        self._rest = bytes(data[start:])


class Channel:
    """Sends frames and resolves calls. Safe to use from any thread."""

    def __init__(self, fd):
        os.set_blocking(fd, False)
        self._fd = fd
        self._raw = io.FileIO(fd, "r+", closefd=False)
        self._frames = FrameReader(self._raw)
        self._read_lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting = {}
        self._watching = weakref.WeakSet()

    def send(self, body):
        """Send one frame of JSON bytes. While the socket is full, replies are read, so that both sides cannot wait for each other."""
        data = memoryview(len(body).to_bytes(4, "big") + body)
        with self._send_lock:
            try:
                while data:
                    count = self._raw.write(data)
                    if count is None:
                        self._wait(select.POLLIN | select.POLLOUT)
                        self.receive()
                    else:
                        data = data[count:]
            except OSError as error:
                raise ChannelClosed("the channel to the daemon is closed") from error

    def first_message(self):
        """Wait for the one message that comes unasked, the program itself. None when the daemon left instead."""
        while not self._frames.ended:
            frames = self._frames.read_available()
            if frames:
                return _loads(str(frames[0], "utf-8"))
            self._wait(select.POLLIN)
        return None

    async def call(self, tool, arguments):
        """Ask the daemon to run a tool with `arguments`, the bytes of a JSON object; give its reply message."""
        loop = asyncio.get_running_loop()
        if loop not in self._watching:
            loop.add_reader(self._fd, self.receive)
            self._watching.add(loop)
        if self._frames.ended:
            raise ChannelClosed("the channel to the daemon is closed")
        number = next(self._numbers)
        future = loop.create_future()
        self._waiting[number] = (loop, future, tool)
        try:
            self.send(b'{"t":"call","id":%d,"tool":%s,"args":%s}' % (number, _dumps(tool).encode("ascii"), arguments))
            return await future
        finally:
            if self._waiting.pop(number, None) is not None:
                self._cancel(number)

    def receive(self):
        """Read what is there and hand out the replies."""
        with self._read_lock:
            frames = self._frames.read_available()
        for frame in frames:
            message = decode(frame)
            waiter = self._waiting.pop(message.get("id"), None)
            if waiter is not None:
                _settle(waiter, message)
        if self._frames.ended:
            self._end()

    def running(self):
        """Names of the tools whose calls have not been answered yet."""
        return [tool for _, _, tool in list(self._waiting.values())]

    def _cancel(self, number):
        try:
            self.send(b'{"t":"cancel","id":%d}' % number)
        except ChannelClosed:
            pass

    def _end(self):
        loop = asyncio._get_running_loop()
        if loop is not None:
            loop.remove_reader(self._fd)
        while self._waiting:
            _, waiter = self._waiting.popitem()
            _settle(waiter, {"ok": False, "code": "channel_closed", "message": "tool channel closed"})

    def _wait(self, events):
        poll = select.poll()
        poll.register(self._fd, events)
        poll.poll()


def decode(frame):
    """The message in a frame. One that Python cannot hold becomes a failure of the call it answers."""
    try:
        return _loads(str(frame, "utf-8"))
    except (ValueError, RecursionError, MemoryError) as error:
        number = re.match(rb'\{"t": ?"result", ?"id": ?(\d+)', frame)
        reason = {RecursionError: "is nested too deeply", MemoryError: "does not fit into the program's memory"}
        return {
            "id": int(number[1]) if number else None,
            "ok": False,
            "code": "malformed",
            "message": "the tool's result " + reason.get(type(error), "cannot be read: " + str(error)),
        }


def _settle(waiter, message):
    loop, future, _ = waiter
    if loop is asyncio._get_running_loop():
        _resolve(future, message)
        return
    try:
        loop.call_soon_threadsafe(_resolve, future, message)
    except RuntimeError:
        pass  # That loop was closed with its call still open.


def _resolve(future, message):
    if not future.done():
        future.set_result(message)
