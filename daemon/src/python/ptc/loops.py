"""`asyncio.run()` where a loop is running already.

A program with `await` at its top level runs inside an event loop, and plain Python forbids to start a second one there. Models write both
styles in one program, so here a nested run is allowed:

* a new loop (`asyncio.run`, `Runner.run`, another loop's `run_until_complete`) runs at once in the same thread while the outer loop stands
  still, exactly as it would in a plain script. Awaiting something that belongs to the outer loop stays the error that asyncio makes it;
* the running loop's own `run_until_complete` turns that loop further until the awaited thing is done, inside the task that asked.
"""

import asyncio
import contextlib
import functools
import threading
from asyncio import base_events, events, runners, selector_events, tasks


def allow_nesting():
    """Teach asyncio to nest. Called once, before any loop exists."""
    base = base_events.BaseEventLoop
    plain_until_complete = base.run_until_complete
    plain_forever = base.run_forever

    def run_until_complete(self, future):
        if events._get_running_loop() is self:
            return _turn(self, future)
        with _outer_loop_stopped():
            return plain_until_complete(self, future)

    def run_forever(self):
        with _outer_loop_stopped():
            return plain_forever(self)

    base.run_until_complete = functools.wraps(plain_until_complete)(run_until_complete)
    base.run_forever = functools.wraps(plain_forever)(run_forever)
    # The sandbox refuses sendmsg, which can carry descriptors. From 3.12 on, transports use it unless told otherwise.
    selector_events._HAS_SENDMSG = False
    asyncio.run = runners.run = _nestable(runners.run)
    asyncio.Runner.run = _nestable(asyncio.Runner.run)


def new_home():
    """Make the event loop of the program's main thread and let `asyncio.get_event_loop()` give it."""
    global _home
    _home = asyncio.new_event_loop()
    events.set_event_loop(_home)
    return _home


_home = None


def _nestable(function):
    @functools.wraps(function)
    def run(*args, **kwargs):
        with _outer_loop_stopped():
            try:
                return function(*args, **kwargs)
            finally:
                # A plain run leaves no current loop behind; programs mix it with get_event_loop(), which then would fail.
                if _home is not None and threading.current_thread() is threading.main_thread():
                    events.set_event_loop(_home)

    return run


@contextlib.contextmanager
def _outer_loop_stopped():
    """Pretend that no loop runs in this thread, and that the current one is as before afterwards."""
    loop = events._get_running_loop()
    if loop is None:
        yield
        return
    task = asyncio.current_task(loop)
    if task is not None:
        tasks._leave_task(loop, task)
    events._set_running_loop(None)
    try:
        yield
    finally:
        events.set_event_loop(loop)
        events._set_running_loop(loop)
        if task is not None:
            tasks._enter_task(loop, task)


def _turn(loop, future):
    """Run the loop that is running now until `future` is done, and give its result."""
    future = tasks.ensure_future(future, loop=loop)
    task = asyncio.current_task(loop)
    if future is task:
        raise RuntimeError("a task cannot wait for itself")
    if task is not None:
        tasks._leave_task(loop, task)
    # The turn of the loop that we are inside of still counts on the callbacks that are ready now, and we run them here.
    owed = len(loop._ready)
    try:
        while not future.done():
            loop._run_once()
    finally:
        if task is not None:
            tasks._enter_task(loop, task)
        for _ in range(owed):
            loop.call_soon(_nothing).cancel()
    return future.result()


def _nothing():
    pass
