"""Hints for values that are not what the program took them for: results, coroutines, tasks and functions."""

import re

from ptc import evidence, syntax_hints
from ptc.jsontext import advice_for

HELPERS = {
    "emit": "emit(value), with exactly one value: put several into a list or a dict",
    "list_callable_tools": "list_callable_tools(query=..., server=..., detail=...), all of them optional",
    "inspect_tool": "inspect_tool(tool_name=...), with one name or a list of names",
    "server_status": "server_status(), without arguments",
}
RUN = "asyncio.run() takes one coroutine, made by a call: asyncio.run(main()); at the top level write `await asyncio.gather(*calls)`"
# What clients of MCP find around a result, and programs do not.
ENVELOPE = {"content", "structuredContent", "structured_content", "isError", "is_error", "text"}


def _attribute(error, text, situation):
    found = re.match(r"'(dict|list|str|NoneType)' object has no attribute '(\w+)'", text)
    if not found:
        return None
    kind, name = found.groups()
    if name in ENVELOPE:
        return f"a tool's result is the value itself, here of type {kind}, with no .{name} around it"
    if hasattr(dict, name):
        return f"the value is of type {kind}; print(repr(value)[:300]) shows what the tool gave" if kind in ("str", "NoneType") else None
    if kind in ("dict", "list"):
        return f"tool results are plain Python values; use [{name!r}] or .get({name!r}) on a dict, an index on a list"
    return None


def _key(error, text, situation):
    if "environ" in situation.failing:
        return "a program's environment is empty: keys and addresses are the servers' own, and the tools use them"
    found = _seen(error)
    if error.args and error.args[0] in ENVELOPE:
        return f"a tool's result is the value itself, with no {error.args[0]!r} around it{found and f'; this one is {found}'}"
    return found and f"the value is {found}"


def _index(error, text, situation):
    found = _seen(error)
    return found and f"the value is {found}"


def _seen(error):
    """What a failing subscript looked into, or an empty text."""
    value = evidence.looked_into(error)
    return "" if value is evidence.MISSING else evidence.described(value)


def _type(error, text, situation):
    found = re.search(r"object (\w+) can't be used in 'await' expression|'(\w+)' object can't be awaited", text)
    if found:
        if (found[1] or found[2]) in ("function", "method", "builtin_function_or_method"):
            return "a function is awaited by calling it: `await name(...)`"
        return "only tool calls and other coroutines are awaited; asyncio.run(...) and plain functions give their value directly"
    if "'async for' requires" in text:
        advice = "`for item in await tool(...)`" if "ToolCall" in text else "`for`"
        return f"a tool gives its whole result at once; use a plain {advice}"
    if "unhashable type" in text and "gather(" in situation.failing:
        return "asyncio.gather() takes the calls one by one: write asyncio.gather(*calls)"
    if "a coroutine or an awaitable is required" in text or "a coroutine was expected" in text:
        return RUN
    if "Passing coroutines is forbidden" in text:
        return "write `await asyncio.gather(*calls)`, or give asyncio.wait() tasks: asyncio.create_task(call)"
    if "'async_generator' object" in text:
        return "an `await` in a generator expression makes an async generator; use a list: [await f(x) for x in xs]"
    if "the JSON object must be str, bytes or bytearray" in text:
        return "tool results are Python values already; leave out json.loads()"
    if "'coroutine' object" in text and "await" not in text:
        return "a coroutine was used as a value; write `await` before the call"
    if "indices must be integers" in text or "object is not subscriptable" in text:
        found = _seen(error)
        return f"the value is {found}" if found else "print(repr(value)[:300]) shows what the value is"
    if "'NoneType' object is not iterable" in text:
        return "the value is None; a tool that gives nothing, and a key without a value, are None"
    found = re.match(r"Object of type (\w+) is not JSON serializable", text)
    if found:
        return advice_for(found[1]) or "json.dumps(..., default=str) turns such values into strings"
    found = re.match(r"(\w+)\(\) (?:got|takes|missing)", text)
    if found and found[1] in HELPERS:
        return f"it is called as {HELPERS[found[1]]}"
    return None


def _value(error, text, situation):
    if "a coroutine was expected" in text:
        return RUN
    if "null bytes" in text and "\0" in situation.source:
        return syntax_hints.nul(situation.source)  # Before Python 3.12 it is no SyntaxError.
    if type(error).__name__ == "JSONDecodeError" and "await" in situation.source:
        return "the text is not JSON; a tool's result that is JSON has been decoded already, other text arrives as it is"
    return None


def _runtime(error, text, situation):
    if "await wasn't used with future" in text:
        return "write `await` before asyncio.gather(...), or await the task"
    if "Task got bad yield" in text:
        return "asyncio.gather() takes the calls one by one: write asyncio.gather(*calls)"
    if "no running event loop" in text:
        return "write `await ...` at the top level of the program, or start with asyncio.run(main())"
    if "_GatheringFuture" in text:
        return RUN
    if "attached to a different loop" in text or "bound to a different event loop" in text:
        return "it belongs to another event loop; create and await it inside the same asyncio.run(), or use only top-level await"
    if "cannot reuse already awaited coroutine" in text:
        return "a coroutine can be awaited once; keep its result in a variable, or call the function again"
    if "can't start new thread" in text:
        return "the number of threads is limited; use asyncio.gather() for concurrent calls"
    if "determine home directory" in text:
        return "a program has no home; its working directory is its own and starts empty"
    return None


RULES = (
    (AttributeError, _attribute),
    (KeyError, _key),
    (IndexError, _index),
    (TypeError, _type),
    (ValueError, _value),
    (RuntimeError, _runtime),
)
