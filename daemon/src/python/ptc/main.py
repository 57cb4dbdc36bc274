"""The life of a child: get ready, take one program, run it, report, end."""

import asyncio
import gc
import json
import os
import platform
import sys
import threading

from ptc import builtin, errors, loops, names, output, program, tools
from ptc.channel import Channel, ChannelClosed

CHANNEL_FD = 3
THREAD_STACK_BYTES = 1024 * 1024


def main():
    """Never returns: the process ends here."""
    channel = get_ready()
    start = channel.first_message()
    if start is not None:
        outcome = Run(channel, start).outcome()
        output.flush()
        try:
            channel.send(outcome)
        except ChannelClosed:
            pass
    os._exit(0)


def get_ready():
    """Everything that does not depend on the program, so that a warm child starts it at once."""
    sys.modules.pop("ssl", None)
    threading.stack_size(THREAD_STACK_BYTES)
    sys.set_int_max_str_digits(0)
    output.install()
    builtin.install()
    errors.install()
    loops.allow_nesting()
    tools.teach_inspect()
    channel = Channel(CHANNEL_FD)
    gc.collect()
    gc.freeze()
    gc.enable()
    channel.send(json.dumps({"t": "ready", "python": platform.python_version()}).encode())
    return channel


class Run:
    """One program."""

    def __init__(self, channel, start):
        self._channel = channel
        self._text = start["code"]
        self._emitted = builtin.Emitted(start.get("limits", {}).get("max_emit_bytes") or sys.maxsize)
        self._toolbox = tools.Toolbox(channel, start.get("tools") or [])
        self._servers = start.get("servers") or []

    def outcome(self):
        """Run the program; the body of the `done` frame."""
        error = self._failure()
        warnings = list(self._emitted.warnings)
        running = self._channel.running()
        if running and error is None:
            warnings.append(f"still running when the program ended, so the results are lost: {', '.join(running[:10])}")
        emitted = self._emitted.text
        head = json.dumps({"t": "done", "ok": error is None, "error": error, "emitted": emitted is not None, "warnings": warnings})
        return f'{head[:-1]}, "result": {emitted or "null"}}}'.encode("ascii")

    def _failure(self):
        """The error text of the program, or None when it ended well."""
        try:
            self._execute()
        except program.ProgramReturn:
            pass
        except SystemExit as error:
            if error.code is not None and not (isinstance(error.code, int) and error.code == 0):
                return errors.render(error, self._hint(error))
        except BaseException as error:
            return errors.render(error, self._hint(error))
        return self._unawaited()

    def _execute(self):
        module = program.new_main()
        names.install(self._toolbox, self._servers)
        scope = module.__dict__
        scope.update(self._toolbox.functions)
        scope.update(self._toolbox.helpers())
        scope["ToolError"] = tools.ToolError
        scope["emit"] = self._emitted.emit
        code = program.compile_program(program.source_of(self._text))
        if program.RETURN in code.co_names:
            scope[program.RETURN] = _Return(self._emitted)
        if not program.is_async(code):
            if "asyncio" in self._text:
                asyncio.set_event_loop(asyncio.new_event_loop())
            exec(code, scope)
            return
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(eval(code, scope))

    def _hint(self, error):
        from ptc import hints

        return hints.hint(error, self._toolbox, self._servers, tools.unawaited_calls())

    def _unawaited(self):
        calls = tools.unawaited_calls()
        if not calls:
            return None
        from ptc import hints

        return errors.cut(hints.unawaited_error(calls))


class _Return:
    """What a top-level `return` calls: the value becomes the emitted one."""

    signal = program.ProgramReturn

    def __init__(self, emitted):
        self._emitted = emitted

    def __call__(self, value):
        if value is not None:
            self._emitted.emit(value)
        return program.ProgramReturn()
