"""Hints for programs that Python cannot read: typography, fences, reserved words as arguments, `await` where it is not allowed."""

import keyword
import re
import sys

from ptc.forgotten import PROGRAM_FILE

_RESERVED = re.compile(r"(?<![\w.])(" + "|".join(keyword.kwlist) + r")\s*=(?!=)")
_DASHED = re.compile(r"[(,]\s*([A-Za-z_@$][\w.@$]*(?:[-.@$/][\w.]+)+)\s*=(?!=)|[(,]\s*([@$][\w.-]+|\d+[A-Za-z_]\w*)\s*=(?!=)")
_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033\u00ab\u00bb"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2212"
_ESCAPED = re.compile(r"&(?:lt|gt|amp|quot|apos|#0*39|#x0*27);")
_AWAIT = ("'await' outside", "'async with' outside", "'async for' outside", "asynchronous comprehension outside")


def hint(error, source):
    """A hint for this SyntaxError in the program `source`, or None."""
    message = str(error.msg or "")
    if "null bytes" in message:
        return nul(source)
    if error.filename != PROGRAM_FILE:
        return "exec() and eval() know no top-level `await`; write the code into the program itself" if "await" in message else None
    lines = source.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    if any(part in message for part in _AWAIT):
        return _await(line)
    if "invalid character" in message or "invalid non-printable character" in message:
        return _character(message, line)
    if _in_prose(lines, error.lineno or 0):
        return "send only Python code: no ``` fences and no prose around it"
    if _ESCAPED.search(line):
        return "the code is HTML-escaped; send the characters themselves: < > & \" '"
    if line.lstrip().startswith(("%", "!")):
        return "notebook commands are not Python, and nothing can be installed: only the standard library is available"
    if "f-string" in message and sys.version_info < (3, 12):
        return "inside {...} of an f-string Python %d.%d takes neither its own quotes nor a backslash; use the other quotes, or a variable" % sys.version_info[:2]
    if "'yield' outside function" in message:
        return "`yield` works inside a function; at the top level print() the values, or emit() a list of them"
    found = _RESERVED.search(line)
    if found:
        return f"`{found[1]}` is a reserved word and cannot be an argument name; pass it as **{{'{found[1]}': ...}}"
    found = _DASHED.search(line)
    if found:
        name = found[1] or found[2]
        return f"{name!r} is no Python name; pass such an argument as **{{{name!r}: ...}}"
    if "after line continuation character" in message and "\\n" in line:
        return "the code contains the two characters \\n where line breaks were meant; send real line breaks"
    if "unexpected indent" in message and error.lineno == _first_line(lines):
        return "the first line is indented; remove the common indentation"
    if isinstance(error, TabError):
        return "indent with spaces only"
    if any(quote in line for quote in _QUOTES):
        return _character("", line)
    return None


def nul(source):
    """Where the NUL is that Python refuses without a place."""
    line = source[: source.find("\0")].count("\n") + 1
    return f"line {line} holds a NUL character; write it as \\0 inside a string"


def _in_prose(lines, number):
    """Whether the line with this number is a fence, or stands before the first or behind the last one."""
    fences = [at for at, line in enumerate(lines, 1) if line.strip().startswith(("```", "~~~"))]
    return bool(fences) and (number <= fences[0] or number >= fences[-1])


def _await(line):
    if "lambda" in line:
        return "a lambda cannot await; write an `async def`, or await first: values = [await f(x) for x in xs]"
    return "`await` works at the top level and inside `async def`: make the function around this line `async def` and await its calls"


def _character(message, line):
    found = next((character for character in line if character in _QUOTES), None)
    if found or any(quote in message for quote in _QUOTES):
        return "typographic quotes do not delimit strings in Python; use ' or \""
    if any(dash in message or dash in line for dash in _DASHES):
        return "a typographic dash is not a minus sign; use -"
    return "remove this character, or put it inside a string; a space must be a plain space"


def _first_line(lines):
    return next((number for number, line in enumerate(lines, 1) if line.strip()), 0)
