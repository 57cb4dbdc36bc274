"""Awaits that a program forgot: tool calls that were made but never begun, and the program's own coroutines that never ran.

Plain Python says nothing, or writes a warning that no one reads, and the program seems to have worked. Here a forgotten tool call, or a
forgotten coroutine of the module's own top level (`main()` as the last line), fails the program with the line to change.
"""

import asyncio
import gc
import inspect
import itertools
import linecache
import sys
import types
import warnings

PROGRAM_FILE = "<program>"
MAX_SHOWN = 10

_calls = {}
_coroutines = []
_numbers = itertools.count(1)


class Forgotten:
    """`count` calls of `name` on one line of the program; `kind` is "tool", "task" (a tool call that a task holds) or "coroutine"."""

    def __init__(self, kind, name, line, count=1):
        self.kind = kind
        self.name = name
        self.line = line
        self.count = count

    def __str__(self):
        place = f" on line {self.line}" if self.line else ""
        times = f" ({self.count} calls)" if self.count > 1 else ""
        if self.kind == "task":
            return (
                f"{self.name}(...){place} was handed to asyncio but never awaited{times}, so the tool did not run; "
                "write `await` before asyncio.gather(...), or await the task"
            )
        effect = "the tool did not run" if self.kind == "tool" else "it did not run"
        return f"{self.name}(...){place} was never awaited{times}, so {effect}; write `await {self.name}(...)`"


def made(name, line):
    """A tool call exists that has not begun; its number, for `begun`."""
    number = next(_numbers)
    _calls[number] = (name, line)
    return number


def begun(number):
    """The call runs now, or was closed on purpose."""
    _calls.pop(number, None)


def watch_coroutines():
    """Know where coroutines are made in this thread, and hear of those that end without having been awaited."""
    sys.set_coroutine_origin_tracking_depth(1)
    warnings._warn_unawaited_coroutine = _never_awaited


def found(scope, in_tasks=()):
    """Everything forgotten so far, grouped by line. `scope` is the program's module dict, `in_tasks` numbers of calls that tasks hold."""
    groups = {}
    calls = [("task" if number in in_tasks else "tool", name, line) for number, (name, line) in list(_calls.items())]
    for key in [*calls, *_coroutines, *_held(scope)]:
        groups[key] = groups.get(key, 0) + 1
    return [Forgotten(*key, count) for key, count in groups.items()]


def error_text(items):
    """Text of the failure of a program that is otherwise well."""
    parts = []
    for item in items[:MAX_SHOWN]:
        source = linecache.getline(PROGRAM_FILE, item.line).strip() if item.line else ""
        if source:
            parts.append(f'  File "{PROGRAM_FILE}", line {item.line}\n    {source}\n')
        parts.append(f"RuntimeError: {item}\n")
    if len(items) > MAX_SHOWN:
        parts.append(f"... and {len(items) - MAX_SHOWN} more\n")
    return "".join(parts)


def unfinished_tasks(loop, own_names):
    """What to say of tasks that had not ended when the program did. `own_names` are names in the program, to tell its functions.

    Tool calls are left to the channel, which knows those outside of tasks as well.
    """
    coroutines = [task.get_coro() for task in asyncio.all_tasks(loop)]
    names = [coroutine.__qualname__ for coroutine in coroutines if type(coroutine) is types.CoroutineType]
    own = sorted({name for name in names if name.partition(".")[0] in own_names})
    return [f"the task {name}(...) had not finished when the program ended; await it to get its result" for name in own[:MAX_SHOWN]]


def failed_tasks():
    """What to say of tasks whose failure nobody has seen: the program holds them, so Python has not complained yet."""
    texts = []
    for task in _all_tasks():
        if task.done() and getattr(task, "_log_traceback", False):
            error = task.exception()
            try:
                reason = f"{type(error).__name__}: {error}"
            except Exception:
                reason = type(error).__name__
            texts.append(f"the task {_coroutine_name(task)}(...) failed and was never awaited: {reason}"[:1000])
    return sorted(texts)[:MAX_SHOWN]


def _all_tasks():
    """Every task that still exists, also those that are done."""
    if sys.version_info < (3, 14):
        return list(getattr(asyncio.tasks, "_scheduled_tasks", None) or getattr(asyncio.tasks, "_all_tasks", ()))
    try:
        # asyncio no longer knows those that are done.
        return [thing for thing in gc.get_objects() if issubclass(type(thing), asyncio.Task)]
    except MemoryError:
        return []


def _coroutine_name(task):
    return getattr(task.get_coro(), "__qualname__", "?")


def _never_awaited(coroutine):
    place = _top_level_line(coroutine)
    line = coroutine.cr_origin[0][1] if coroutine.cr_origin else coroutine.cr_code.co_firstlineno
    if place is not None:
        _coroutines.append(("coroutine", coroutine.__qualname__, place))
    file = coroutine.cr_origin[0][0] if coroutine.cr_origin else coroutine.cr_code.co_filename
    sys.stderr.write(f"{file}:{line}: RuntimeWarning: coroutine '{coroutine.__qualname__}' was never awaited\n")


def _held(scope):
    """Coroutines that never ran and that the program still holds in a global name."""
    for value in list(scope.values()):
        for item in value if type(value) in (list, tuple) else (value,):
            if type(item) is types.CoroutineType and inspect.getcoroutinestate(item) == inspect.CORO_CREATED:
                line = _top_level_line(item)
                if line is not None:
                    yield ("coroutine", item.__qualname__, line)


def _top_level_line(coroutine):
    """The line of the module's own code that made this coroutine, or None when something else did."""
    if not coroutine.cr_origin or coroutine.cr_code.co_filename != PROGRAM_FILE:
        return None
    file, line, function = coroutine.cr_origin[0]
    return line if file == PROGRAM_FILE and function == "<module>" else None
