"""The life of a child: get ready, take one program, run it, report, end."""

import asyncio
import datetime  # Wanted by many programs, like math, and slow to load.
import gc
import math
import sys
import threading
import traceback
from json import dumps
from os import _exit as end

from ptc import builtin, forgotten, loops, names, output, program, tools
from ptc.channel import Channel, ChannelClosed

CHANNEL_FD = 3
THREAD_STACK_BYTES = 1024 * 1024


def main():
    """Never returns: the process ends here."""
    channel = get_ready()
    start = channel.first_message()
    if start is not None:
        try:
            outcome = Run(channel, start).outcome()
        except BaseException as error:
            outcome = _last_words(error)
        output.flush()
        try:
            channel.send(outcome)
        except ChannelClosed:
            pass
    end(0)


def _last_words(error):
    """The `done` frame when not even the report of a failure could be made, for want of memory most likely."""
    text = f"RuntimeError: the program ended, but its outcome could not be reported: {type(error).__name__}"
    return dumps({"t": "done", "ok": False, "error": text, "emitted": False, "warnings": [], "result": None}).encode("ascii")


def get_ready():
    """Everything that does not depend on the program, so that a warm child starts it at once."""
    sys.modules.pop("ssl", None)
    threading.stack_size(THREAD_STACK_BYTES)
    sys.set_int_max_str_digits(0)
    output.install()
    builtin.install()
    _report_without_runtime_frames()
    loops.allow_nesting()
    tools.teach_inspect()
    channel = Channel(CHANNEL_FD)
    gc.collect()
    gc.freeze()
    gc.enable()
    channel.send(dumps({"t": "ready", "python": "%d.%d.%d" % sys.version_info[:3]}).encode())
    return channel


def _report_without_runtime_frames():
    """Failures that only get reported, in threads and in tasks nobody awaits, show the program's frames only.

    Tracebacks that a program prints itself keep the library's frames and lose only ours.
    """

    def in_thread(args):
        from ptc import errors

        errors.thread_failed(args)

    def in_loop(loop, context):
        from ptc import errors

        errors.loop_failed(loop, context)

    walk = traceback._walk_tb_with_full_positions

    def walk_without_runtime(trace):
        return (step for step in walk(trace) if not step[0].f_code.co_filename.startswith("<ptc/"))

    threading.excepthook = in_thread
    asyncio.BaseEventLoop.default_exception_handler = in_loop
    traceback._walk_tb_with_full_positions = walk_without_runtime


class Run:
    """One program."""

    def __init__(self, channel, start):
        self._channel = channel
        self._source = program.source_of(start["code"])
        self._scope = program.new_main().__dict__
        self._loop = None
        self._emitted = builtin.Emitted(start.get("limits", {}).get("max_emit_bytes") or sys.maxsize)
        self._toolbox = tools.Toolbox(channel, start.get("tools") or [])
        self._servers = start.get("servers") or []

    def outcome(self):
        """Run the program; the body of the `done` frame."""
        error = self._failure()
        emitted = self._emitted.text
        head = {"t": "done", "ok": error is None, "error": error, "emitted": emitted is not None}
        head["warnings"] = [valid(text) for text in self._emitted.warnings + (self._left_behind() if error is None else [])]
        return f'{dumps(head)[:-1]}, "result": {emitted or "null"}}}'.encode("ascii")

    def _failure(self):
        """The error text of the program, or None when it ended well."""
        try:
            self._execute()
        except program.ProgramReturn:
            pass
        except SystemExit as error:
            if error.code is not None and not (isinstance(error.code, int) and error.code == 0):
                return self._render(error)
        except BaseException as error:
            return self._render(error)
        lost = forgotten.found(self._scope, self._tasks_not_begun())
        return valid(forgotten.error_text(lost)) if lost else None

    def _execute(self):
        names.install(self._toolbox, self._servers)
        scope = self._scope
        scope.update(self._toolbox.functions)
        scope.update(names.of_absent_servers(self._toolbox, self._servers, self._source))
        scope.update(self._toolbox.helpers())
        scope["ToolError"] = tools.ToolError
        scope["emit"] = self._emitted.emit
        code = program.compile_program(self._source)
        if program.RETURN in code.co_names:
            scope[program.RETURN] = _Return(self._emitted)
        forgotten.watch_coroutines()
        waits = program.is_async(code)
        if waits or "asyncio" in self._source:
            self._loop = loops.new_home()
        if waits:
            self._loop.run_until_complete(eval(code, scope))
        else:
            exec(code, scope)

    def _render(self, error):
        if isinstance(error, MemoryError):
            # What the program holds would leave no room to say so.
            traceback.clear_frames(error.__traceback__)
            self._scope.clear()
        from ptc import errors, hints

        try:
            # A call that was handed to a task had no time to begin before the program failed; that is not its fault.
            lost = [item for item in forgotten.found(self._scope, self._tasks_not_begun()) if item.kind != "task"]
            idents = [server["ident"] for server in self._servers]
            situation = hints.Situation(self._source, self._toolbox.specs, idents, lost)
            found = hints.hints(error, situation)
        except Exception:
            found = []  # A program can break what hints look at; its error still has to come out.
        return errors.render(error, found)

    def _tasks_not_begun(self):
        """Numbers of calls that were handed to a task which had no time to begin before the program ended."""
        tasks = asyncio.all_tasks(self._loop) if self._loop is not None else ()
        calls = [task.get_coro() for task in tasks]
        return {call.number for call in calls if type(call) is tools.ToolCall}

    def _left_behind(self):
        """What was still going on when the program ended well, and what it seems to have left out."""
        found = []
        if self._emitted.text is None and not output.written():
            missing = program.left_out(self._source)
            found += [missing] if missing else []
        if self._loop is not None:
            found += forgotten.unfinished_tasks(self._loop, self._scope.keys())
            found += forgotten.failed_tasks()
        running = self._channel.running()
        if running:
            found.append(f"tool calls still running when the program ended, so their results are lost: {', '.join(running[:10])}")
        return found


def valid(text):
    """The text with an escape for each lone surrogate, which no strict reader of the report would take."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Return:
    """What a top-level `return` calls: the value becomes the emitted one."""

    signal = program.ProgramReturn

    def __init__(self, emitted):
        self._emitted = emitted

    def __call__(self, value):
        if value is not None:
            self._emitted.emit(value)
        return program.ProgramReturn()
