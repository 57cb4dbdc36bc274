"""The value that a failing subscript such as `row["price"]` looked into, found in the frame that failed.

Only names, constants and plain dicts and lists are looked at: nothing of the program runs again.
"""

import ast
import itertools
import linecache

from ptc.forgotten import PROGRAM_FILE
from ptc.jsontext import short

MAX_KEYS = 20
MISSING = object()


def looked_into(error):
    """The value before the brackets that failed, or MISSING when the failure is no such thing."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None or step.tb_frame.f_code.co_filename != PROGRAM_FILE:
        return MISSING
    positions = itertools.islice(step.tb_frame.f_code.co_positions(), step.tb_lasti // 2, None)
    line, end, column, end_column = next(positions, (None,) * 4)
    if None in (line, end, column, end_column) or line != end:
        return MISSING
    part = linecache.getline(PROGRAM_FILE, line).encode()[column:end_column].decode("utf-8", "replace")
    try:
        node = ast.parse(part.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return MISSING
    return _value(node.value, step.tb_frame) if isinstance(node, ast.Subscript) else MISSING


def described(value):
    """What the value is, in one line: the keys of a dict, the size of a list."""
    if type(value) is dict:
        keys = [short(key) for key in itertools.islice(value, MAX_KEYS)]
        more = f" and {len(value) - MAX_KEYS} more" if len(value) > MAX_KEYS else ""
        return f"a dict with the keys {', '.join(keys)}{more}" if keys else "an empty dict"
    if type(value) in (list, tuple):
        kind = type(value).__name__
        return f"a {kind} of {len(value)} items, the first is {short(value[0])}" if value else f"an empty {kind}"
    if type(value) is str:
        return f"the string {short(value)}"
    return f"{short(value)}, of type {type(value).__name__}"


def _value(node, frame):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
        return MISSING
    if not isinstance(node, ast.Subscript):
        return MISSING
    whole, key = _value(node.value, frame), _value(node.slice, frame)
    if type(whole) not in (dict, list) or type(key) not in (str, int, float, bool, type(None)):
        return MISSING
    try:
        return whole[key]
    except (LookupError, TypeError):
        return MISSING
