"""What the model reads when a program fails: the program's own frames with their source lines, the exception, and a hint.

Frames of the runtime and of the standard library are left out, in chained exceptions and in exception groups as well.
"""

import os
import sys
import traceback

from ptc.forgotten import PROGRAM_FILE

MAX_TEXT = 16 * 1024
# What Python 3.15 says of a missing module under -S. It would send the author looking for something that is not to be had.
_NO_SITE_ADVICE = (
    ". Site initialization is disabled, did you forget to add the site-packages directory to sys.path or to enable your virtual environment?"
)
# Programs hold data in long lines; of one that failed a part is enough.
MAX_LINE = 300


def render(error, hints=()):
    """Text of an exception with a line for each hint, at most about `MAX_TEXT` characters, always valid UTF-8."""
    try:
        text = "".join(_formatted(error))
    except BaseException:
        text = f"{type(error).__name__}: {_plain(error)}\n"
    text = cut(text)
    return text + "".join(f"hint: {cut(hint)}\n" for hint in hints)


def cut(text):
    """The text without lone surrogates, and without its middle when it is too long."""
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        text = f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _formatted(error):
    exception = traceback.TracebackException(type(error), error, error.__traceback__, compact=True)
    _keep_program_frames(exception, set())
    return (line.replace(_NO_SITE_ADVICE, "") for line in exception.format())


def _keep_program_frames(exception, seen):
    if exception is None or id(exception) in seen:
        return
    seen.add(id(exception))
    if exception.stack is not None:
        exception.stack[:] = [_shortened(frame) for frame in exception.stack if is_program_file(frame.filename)]
        if not exception.stack:
            exception.stack = None
    _shorten_syntax(exception)
    _keep_program_frames(exception.__cause__, seen)
    _keep_program_frames(exception.__context__, seen)
    # What the library handled inside itself says nothing of the program.
    if exception.__cause__ is not None and exception.__cause__.stack is None and _is_cancellation(exception.__cause__):
        exception.__cause__ = None
        exception.__suppress_context__ = True
    if exception.__context__ is not None and exception.__context__.stack is None:
        exception.__context__ = None
    for part in exception.exceptions or ():
        _keep_program_frames(part, seen)


def _shortened(frame):
    if len(frame.line or "") <= MAX_LINE:
        return frame
    # Without the marks below, which would stand under the wrong place.
    return traceback.FrameSummary(frame.filename, frame.lineno, frame.name, lookup_line=False, line=frame.line[:MAX_LINE] + " ...")


def _shorten_syntax(exception):
    """Leave the part of a SyntaxError's long line that its mark points at."""
    text, offset = getattr(exception, "text", None), getattr(exception, "offset", None)
    if not isinstance(text, str) or len(text) <= MAX_LINE:
        return
    start = max(0, (offset or 0) - MAX_LINE // 2)
    exception.text = ("... " if start else "") + text[start : start + MAX_LINE].rstrip() + (" ..." if start + MAX_LINE < len(text) else "")
    moved = start - (4 if start else 0)
    if offset:
        exception.offset = offset - moved
    if getattr(exception, "end_offset", None):
        exception.end_offset = min(exception.end_offset - moved, MAX_LINE) if exception.end_offset > moved else 0


def _is_cancellation(exception):
    return "".join(exception.format_exception_only()).startswith("asyncio.exceptions.CancelledError")


def is_program_file(filename):
    """Whether a frame's file is the program or a module that the program wrote itself."""
    if filename == PROGRAM_FILE:
        return True
    if filename.startswith("<"):
        return False
    return not os.path.abspath(filename).startswith(_LIBRARY)


def _plain(error):
    try:
        return str(error)
    except BaseException:
        return "<its text cannot be shown>"


def program_lines(error):
    """Line numbers of the program in the exception's traceback, outermost first."""
    lines, step = [], error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == PROGRAM_FILE:
            lines.append(step.tb_lineno)
        step = step.tb_next
    return lines


def modules(error):
    """Top names of the modules that the exception's traceback goes through."""
    names, step = set(), error.__traceback__
    while step is not None:
        names.add(step.tb_frame.f_globals.get("__name__", "").partition(".")[0])
        step = step.tb_next
    return names


def thread_failed(args):
    """A `threading.excepthook`."""
    if args.exc_type is SystemExit or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "?"
    _write(f"Exception in thread {name}:\n{render(args.exc_value)}")


def loop_failed(loop, context):
    """An event loop's default exception handler, for failures that no one awaits."""
    error = context.get("exception")
    text = context.get("message") or "Unhandled exception in event loop"
    subject = context.get("task") or context.get("future")
    if subject is not None:
        text += f"\n{subject!r}"
    _write(f"{text}\n{render(error) if error is not None else ''}")


def _write(text):
    try:
        sys.stderr.write(text)
    except Exception:
        pass  # Nowhere to report to.


_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
