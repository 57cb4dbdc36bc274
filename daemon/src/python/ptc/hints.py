"""Hints: last lines under an error that say what is valid instead. Loaded only when a program fails."""

import difflib
import errno
import re
import sys

from ptc import errors, syntax_hints

NETWORK = {"requests", "httpx", "aiohttp", "urllib3", "websockets", "openai", "anthropic", "boto3"}
TABLES = {"pandas", "numpy", "polars", "scipy", "matplotlib", "sklearn"}
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


class Situation:
    """What hints may draw on: the program's text, its tools by name, its servers' idents, and forgotten awaits."""

    def __init__(self, source, tools, servers, forgotten):
        self.source = source
        self.tools = tools
        self.servers = servers
        self.forgotten = forgotten


def hints(error, situation):
    """Hints for this exception, most specific first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = _text(error)
    found = []
    for kind, rule in _RULES:
        if isinstance(error, kind):
            hint = rule(error, text, situation)
            if hint:
                found.append(hint)
                break
    lines = errors.program_lines(error)
    for item in situation.forgotten:
        # On the failing line itself the missing await is the reason only when the message shows it; ours say it themselves.
        if not lines or item.line != lines[-1] or "ToolCall" in text or "coroutine" in text:
            found.append(str(item))
    return found[:5]


def _text(error):
    try:
        return str(error)
    except BaseException:
        return ""


def _syntax(error, text, situation):
    return syntax_hints.hint(error, situation.source)


def _name(error, text, situation):
    name = error.name or ""
    full = [tool for tool, spec in situation.tools.items() if spec.get("attr") == name]
    if full:
        return f"the function is called {' or '.join(full[:3])}"
    if name.startswith("mcp_"):
        return _tool(name, situation.tools)
    if name == "servers":
        return "write `import servers` first, or use the global names mcp__<server>__<tool>"
    if name in situation.servers:
        return f"write `from servers import {name}` first"
    if name in ("true", "false", "null"):
        return f"in Python it is {({'true': 'True', 'false': 'False', 'null': 'None'})[name]}"
    if name in sys.stdlib_module_names:
        return f"write `import {name}` first"
    close = difflib.get_close_matches(name, situation.tools, 1, 0.8)
    return f"did you mean {close[0]}?" if close else None


def _tool(name, tools):
    if not tools:
        return "no tools are available; `await server_status()` says why"
    close = difflib.get_close_matches(name, tools, 3, 0.5)
    if close:
        return f"there is no tool {name}; did you mean {' or '.join(close)}?"
    return f"there is no tool {name}; `await list_callable_tools()` gives all {len(tools)}"


def _missing_module(error, text, situation):
    top = (error.name or "").partition(".")[0]
    if top == "nest_asyncio":
        return "leave it out: asyncio.run() works in a program as it is"
    if top == "servers" or top.startswith("mcp"):
        return None
    advice = ""
    if top in NETWORK:
        advice = "; there is no network either, data comes from the tools"
    elif top in TABLES:
        advice = "; csv, statistics, collections and plain lists of dicts do the same for small data"
    return f"only the Python standard library is available{advice}"


def _attribute(error, text, situation):
    found = re.match(r"'(dict|list)' object has no attribute '(\w+)'", text)
    if found and not hasattr(dict, found[2]):
        return f"tool results are plain Python values; use [{found[2]!r}] or .get({found[2]!r}) on a dict, an index on a list"
    return None


def _type(error, text, situation):
    found = re.search(r"object (\w+) can't be used in 'await' expression|'(\w+)' object can't be awaited", text)
    if found:
        return "only tool calls and other coroutines are awaited; asyncio.run(...) and plain functions give their value directly"
    if "'async_generator' object" in text:
        return "an `await` in a generator expression makes an async generator; use a list: [await f(x) for x in xs]"
    if "the JSON object must be str, bytes or bytearray" in text:
        return "tool results are Python values already; leave out json.loads()"
    if "'coroutine' object" in text and "await" not in text:
        return "a coroutine was used as a value; write `await` before the call"
    return None


def _runtime(error, text, situation):
    if "no running event loop" in text:
        return "write `await ...` at the top level of the program, or start with asyncio.run(main())"
    if "attached to a different loop" in text or "bound to a different event loop" in text:
        return "it belongs to another event loop; create and await it inside the same asyncio.run(), or use only top-level await"
    if "cannot reuse already awaited coroutine" in text:
        return "a coroutine can be awaited once; keep its result in a variable, or call the function again"
    if "can't start new thread" in text:
        return "the number of threads is limited; use asyncio.gather() for concurrent calls"
    return None


def _memory(error, text, situation):
    return "the program reached its memory limit; keep less data at a time"


def _os(error, text, situation):
    if type(error).__module__ == "socket" or type(error).__name__ == "gaierror":
        return "programs have no network; data comes from the tools"
    filename = error.filename
    if isinstance(filename, (str, bytes)):
        name = filename if isinstance(filename, str) else filename.decode("utf-8", "replace")
        outside = name.startswith(("/", "~", ".."))
        if outside and (error.errno in NO_PERMISSION or error.errno == errno.ENOENT):
            return "the sandbox has no files but the program's own working directory, which starts empty; get data through the tools"
        if error.errno == errno.ENOENT:
            return "the working directory starts empty: a program sees no files but those it writes itself"
    if error.errno == errno.ENOSPC or error.errno == errno.EFBIG:
        return "the working directory is small; keep data in variables"
    if error.errno in (*NO_PERMISSION, errno.ENOSYS):
        return "the sandbox allows no network, no other processes and no files outside the working directory"
    return None


_RULES = (
    (SyntaxError, _syntax),
    (NameError, _name),
    (ModuleNotFoundError, _missing_module),
    (AttributeError, _attribute),
    (TypeError, _type),
    (RuntimeError, _runtime),
    (MemoryError, _memory),
    (OSError, _os),
)
