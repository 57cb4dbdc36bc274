"""Names that programs expect everywhere: `emit`, `exit`, `quit`, `help`, and an `input` that says why it cannot work."""

import builtins
import sys

from ptc import jsontext
from ptc.tools import ToolCall, program_line


class Emitted:
    """The program's structured result. The last `emit` wins."""

    def __init__(self, limit):
        self._limit = limit
        self.text = None
        self.warnings = []

    def emit(self, value):
        """Give `value` (anything JSON can hold) back as the program's structured result. The last emit() wins."""
        name = type(value).__name__
        if type(value) is ToolCall:
            raise TypeError(f"the emitted value is {value.__name__}(...), which was not awaited; write `await {value.__name__}(...)`")
        if hasattr(value, "__await__"):
            raise TypeError(f"the emitted value is a {name}, which was not awaited; write `await` before it")
        try:
            text = jsontext.encode(value, "result")
        except jsontext.Unencodable as fault:
            raise fault.kind(f"emit() value must be JSON-serializable: {fault.reason}") from None
        if jsontext.has_lone_surrogates(text):
            text = jsontext.replace_lone_surrogates(text)
            self.warnings.append(f"emit() on line {program_line()}: half of a surrogate pair is no text and was replaced by U+FFFD")
        if len(text) > self._limit:
            raise ValueError(f"emit() value is {len(text)} bytes; the limit is {self._limit}")
        self.text = text


def install():
    """Put the interactive helpers, which `site` would bring, into builtins."""
    builtins.exit = _Quitter("exit")
    builtins.quit = _Quitter("quit")
    builtins.help = _help
    builtins.input = _input


class _Quitter:
    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"Use {self._name}() to end the program"

    def __call__(self, code=None):
        raise SystemExit(code)


def _help(*subjects):
    if not subjects:
        print("help(x) describes x, for example help(mcp__server__tool). await list_callable_tools() names all tools.")
        return
    import pydoc

    for subject in subjects:
        try:
            print(pydoc.plain(pydoc.render_doc(subject, "Help on %s:")))
        except ImportError as error:
            print(error)


def _input(prompt=""):
    raise NoInput("input() is not available: a program has no stdin. Put the values into the code")


class NoInput(EOFError):
    """The program asked for keyboard input."""


NoInput.__name__ = NoInput.__qualname__ = "EOFError"
NoInput.__module__ = "builtins"
Emitted.emit.__qualname__ = "emit"
_help.__name__ = "help"
_input.__name__ = "input"
