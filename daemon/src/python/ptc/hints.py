"""Hints: last lines under an error that say what is valid instead. Loaded only when a program fails."""

import difflib
import errno
import itertools
import sys

from ptc import errors, syntax_hints, value_hints

NETWORK = {"requests", "httpx", "aiohttp", "urllib3", "websockets", "openai", "anthropic", "boto3"}
TABLES = {"pandas", "numpy", "polars", "scipy", "matplotlib", "sklearn"}
REPLACED = {
    "attr": "dataclasses",
    "bs4": "html.parser",
    "dateutil": "datetime.fromisoformat()",
    "dotenv": "plain names: a program has no environment",
    "lxml": "xml.etree.ElementTree",
    "orjson": "json",
    "pydantic": "dataclasses",
    "pytz": "zoneinfo",
    "rich": "print()",
    "simplejson": "json",
    "tabulate": "print() with f-strings",
    "tenacity": "a loop with try",
    "toml": "tomllib",
    "tqdm": "nothing: nobody watches",
    "ujson": "json",
    "yaml": "json",
}
CLIENTS = {"mcp", "call_tool", "call_mcp_tool", "use_mcp_tool", "client", "session", "tools"}
TOO_DEEP = "the code itself is nested too deeply, or an expression in it is too long; put data into a list or a string"
NO_NETWORK = "programs have no network; data comes from the tools"
NO_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


class Situation:
    """What hints may draw on: the program's text, its tools by name, its servers' idents, and forgotten awaits."""

    def __init__(self, source, tools, servers, forgotten):
        self.source = source
        self.tools = tools
        self.servers = servers
        self.forgotten = forgotten
        self.failing = ""

    def line(self, number):
        """A line of the program."""
        return next(itertools.islice(self.source.splitlines(), number - 1, None), "")


def hints(error, situation):
    """Hints for this exception, most specific first."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = _text(error)
    found = []
    lines = errors.program_lines(error)
    situation.failing = situation.line(lines[-1]) if lines else ""
    for kind, rule in _RULES:
        if isinstance(error, kind):
            hint = rule(error, text, situation)
            if hint:
                found.append(hint)
                break
    for item in situation.forgotten:
        # On the failing line itself the missing await is the reason only when the message shows it; ours say it themselves.
        if not lines or item.line != lines[-1] or (not found and ("ToolCall" in text or "coroutine" in text)):
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
    if name in CLIENTS:
        return f"tools are plain functions here: {_example(situation)}; `await list_callable_tools()` names all"
    if name == "__file__":
        return "a program is no file; its working directory is its own and starts empty"
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


def _example(situation):
    return f"`await {next(iter(situation.tools), 'mcp__<server>__<tool>')}(...)`"


def _missing_module(error, text, situation):
    top = (error.name or "").partition(".")[0]
    if top == "nest_asyncio":
        return "leave it out: asyncio.run() works in a program as it is"
    if top == "servers" or top.startswith("mcp__"):
        return None
    if top in sys.stdlib_module_names:
        return None
    if top.startswith("mcp") or top == "fastmcp":
        return f"tools need no client and no import: {_example(situation)}, or `from servers import <server>`"
    advice = ""
    if top in NETWORK:
        advice = "; there is no network either, data comes from the tools"
    elif top in REPLACED:
        advice = f"; use {REPLACED[top]}"
    elif top in TABLES:
        advice = "; csv, statistics, collections and plain lists of dicts do the same for small data"
    return f"only the Python standard library is available{advice}"


def _memory(error, text, situation):
    if not errors.program_lines(error):
        return TOO_DEEP  # Python's parser says it so.
    return "the program reached its memory limit; keep less data at a time"


def _recursion(error, text, situation):
    return TOO_DEEP if "during compilation" in text or not errors.program_lines(error) else None


def _os(error, text, situation):
    if isinstance(error, TimeoutError):
        return None if text else "the time that the program itself gave with wait_for() or timeout() was over; calls still running then were cancelled"
    if type(error).__module__ in ("socket", "urllib.error"):
        return NO_NETWORK
    if "multiprocessing" in errors.modules(error):
        return "the sandbox allows no other processes; make calls at the same time with asyncio.gather(), and share work among threads"
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
    (RecursionError, _recursion),
    *value_hints.RULES,
    (MemoryError, _memory),
    (OSError, _os),
)
