"""Tools as async functions, and the calls they return.

A tool function checks and encodes its arguments when it is called and returns a `ToolCall`: a coroutine that asks the daemon when it is
awaited, by whatever loop awaits it. A call that nobody ever awaits did not happen; `forgotten` knows each one with its tool and line.
"""

import collections.abc
import inspect
import re
import sys
import types

from ptc import convert, forgotten, jsontext
from ptc.channel import MAX_FRAME_BYTES, ChannelClosed
from ptc.forgotten import PROGRAM_FILE


class ToolError(Exception):
    """A tool call failed.

    `tool` is the tool's name, `code` a stable word for the kind of failure such as "timeout", `message` the text.
    """

    def __init__(self, message="", tool=None, code=None):
        super().__init__(message)
        self.tool = tool
        self.code = code
        self.message = message


# Programs see the class as their own, so tracebacks show it without a module.
ToolError.__module__ = "__main__"


class ToolCall(collections.abc.Coroutine):
    """One call of a tool, not yet begun. Await it, once."""

    def __init__(self, name, begin, line):
        self.__name__ = self.__qualname__ = name
        self._begin = begin
        self._coroutine = None
        self.number = forgotten.made(name, line)

    @property
    def __class__(self):
        # Programs that tell coroutines apart with inspect.iscoroutine() must take it for one.
        return types.CoroutineType

    def __await__(self):
        return self._start().__await__()

    def send(self, value):
        return (self._coroutine or self._start()).send(value)

    def throw(self, *exc):
        return (self._coroutine or self._start()).throw(*exc)

    def close(self):
        forgotten.begun(self.number)
        if self._coroutine is None:
            self._begin = None
        else:
            self._coroutine.close()

    def _start(self):
        if self._begin is None:
            raise RuntimeError(f"this call of {self.__name__} was awaited already; keep the result of the first await in a variable")
        forgotten.begun(self.number)
        begin, self._begin = self._begin, None
        self._coroutine = begin()
        return self._coroutine

    def __repr__(self):
        if self._begin is not None:
            return f"<call of {self.__name__}, not awaited yet: write `await {self.__name__}(...)`>"
        return f"<call of {self.__name__}>"

    def __bool__(self):
        return True  # asyncio asks, and must not get to __len__.

    def __getattr__(self, attribute):
        if attribute.startswith(("__", "_", "cr_", "gi_", "ag_")):
            raise AttributeError(attribute)
        raise AttributeError(f"{self._advice()}; it has no attribute {attribute!r} before")

    def _advice(self):
        return f"{self.__name__}(...) was not awaited: write (await {self.__name__}(...))"

    def _not_awaited(self, *_):
        raise TypeError(self._advice())

    __getitem__ = __setitem__ = __delitem__ = __iter__ = __len__ = __contains__ = __enter__ = __exit__ = _not_awaited
    __add__ = __radd__ = __lt__ = __gt__ = __le__ = __ge__ = __int__ = __float__ = __index__ = _not_awaited


def program_line():
    """The line of the program that is running now, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM_FILE:
            return frame.f_lineno
        frame = frame.f_back
    return None


class Toolbox:
    """Makes the functions a program calls. `specs` are the tools of the start message."""

    def __init__(self, channel, specs):
        self._channel = channel
        self.specs = {spec["name"]: spec for spec in specs}
        self.functions = {name: self._tool(spec) for name, spec in self.specs.items()}

    def helpers(self):
        """The functions that tell a program about tools and servers; they are not tools and are not counted."""

        def list_callable_tools(query=None, server=None, detail=None):
            """Names of the tools this program may call. `query` ranks and filters them by what they do, `server` keeps one server's,
            detail="signatures" gives each tool's call with its types."""
            return self._helper("list_callable_tools", {"query": query, "server": server, "detail": detail})

        def inspect_tool(tool_name):
            """Description, schemas and signature of one tool, or of several when given a list of names."""
            return self._helper("inspect_tool", {"tool_name": tool_name})

        def server_status():
            """For every server: whether it is connected, how many tools it has, and its last error."""
            return self._helper("server_status", {})

        functions = (list_callable_tools, inspect_tool, server_status)
        for function in functions:
            function.__module__ = "__main__"
            function.__qualname__ = function.__name__
            mark_async(function)
        return {function.__name__: function for function in functions}

    def _tool(self, spec):
        name = spec["name"]

        def tool(*args, **kwargs):
            if args:
                raise TypeError(positional_arguments_message(spec))
            body = encode_arguments(name, kwargs)
            return ToolCall(name, lambda: self._invoke(name, body), program_line())

        tool.__name__ = tool.__qualname__ = name
        tool.__module__ = "__main__"
        tool.__doc__ = spec.get("doc") or f"A tool of the server {spec.get('server')}. Await it; keyword arguments only."
        if spec.get("params") is not None:
            tool.__wrapped__ = _Signed(spec)
        return mark_async(tool)

    def absent(self, name):
        """The function for a tool whose server is down: what it takes is not known, and each call fails with the reason."""

        def tool(*args, **kwargs):
            return ToolCall(name, lambda: self._invoke(name, b"{}"), program_line())

        tool.__name__ = tool.__qualname__ = name
        tool.__module__ = "__main__"
        tool.__doc__ = "A tool of a server that is not connected."
        return mark_async(tool)

    def _helper(self, name, arguments):
        given = {key: value for key, value in arguments.items() if value is not None}
        body = encode_arguments(name, given)
        return ToolCall(name, lambda: self._invoke(name, body), program_line())

    async def _invoke(self, name, body):
        try:
            reply = await self._channel.call(name, body)
        except ChannelClosed:
            raise ToolError("tool channel closed", name, "channel_closed") from None
        if not reply["ok"]:
            raise ToolError(reply.get("message") or f"{name!r} failed", name, reply.get("code"))
        if "mcp" in reply:
            return convert.value_of(reply["mcp"])
        return reply.get("value")


def encode_arguments(name, arguments):
    """JSON bytes of a call's arguments; TypeError or ValueError says which argument is wrong and why."""
    parts = []
    for key, value in arguments.items():
        try:
            text = jsontext.encode(value, key)
            if "\\ud" in text and jsontext.has_lone_surrogates(text):
                where = jsontext.find_surrogate(value, key) or key
                raise jsontext.Unencodable(ValueError, f"{where} contains half of a surrogate pair, which is no text")
            parts.append(f"{jsontext.encode(key, 'name')}: {text}")
        except jsontext.Unencodable as fault:
            raise fault.kind(f"arguments to {name} must be JSON-serializable: {fault.reason}") from None
    body = ("{" + ", ".join(parts) + "}").encode("ascii")
    if len(body) > MAX_FRAME_BYTES - 4096:
        raise ValueError(f"arguments to {name} are {len(body)} bytes; the limit is {MAX_FRAME_BYTES - 4096}")
    return body


def positional_arguments_message(spec):
    """What to say when arguments come without names: the call as it should be written."""
    params = spec.get("params")
    text = f"{spec['name']}() takes keyword arguments only"
    if params is None:
        return f"{text}; write {spec['name']}(name=value, ...)"
    if not params:
        return f"{text}, and this tool has none: write {spec['name']}()"
    shown = ", ".join(f"{param['name']}=..." for param in params if not param.get("keyword"))
    reserved = ", ".join(f"{param['name']!r}: ..." for param in params if param.get("keyword"))
    if reserved:
        shown += (", " if shown else "") + "**{" + reserved + "}"
    return f"{text}; write {spec['name']}({shown})"


def signature(spec):
    """An `inspect.Signature` with the tool's parameters, all keyword-only."""
    parameters, more = [], False
    for param in spec["params"]:
        if param.get("keyword") or not param["name"].isidentifier():
            more = True
            continue
        if param.get("required"):
            default = inspect.Parameter.empty
        else:
            default = param.get("default", _Shown("..."))
        annotation = _Shown(param["type"]) if param.get("type") else inspect.Parameter.empty
        parameters.append(inspect.Parameter(param["name"], inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    if more:
        parameters.append(inspect.Parameter("reserved", inspect.Parameter.VAR_KEYWORD))
    returns = re.search(r"\) *-> *(.+)$", spec.get("signature") or "")
    annotation = _Shown(returns[1].strip()) if returns else inspect.Signature.empty
    return inspect.Signature(parameters, return_annotation=annotation, __validate_parameters__=False)


class _Signed:
    """What `inspect.signature` finds behind a tool function. The signature is made when somebody asks, not for each of many tools."""

    def __init__(self, spec):
        self._spec = spec

    @property
    def __signature__(self):
        return signature(self._spec)


class _Shown:
    """Stands in a signature for a type or a default that is only text."""

    def __init__(self, text):
        self._text = text

    def __repr__(self):
        return self._text


def mark_async(function):
    """Make `function` count as async wherever Python asks, though it is not written with `async def`."""
    mark = getattr(inspect, "markcoroutinefunction", None)
    if mark is not None:
        return mark(function)
    function._is_coroutine = sys.modules["asyncio.coroutines"]._is_coroutine
    function._ptc_async = True
    return function


def teach_inspect():
    """Before Python 3.12, `inspect` knows async functions by their code only; let it see the mark of `mark_async` too."""
    if hasattr(inspect, "markcoroutinefunction"):
        return
    known = inspect.iscoroutinefunction

    def iscoroutinefunction(obj):
        return known(obj) or getattr(obj, "_ptc_async", False) is True

    iscoroutinefunction.__doc__ = known.__doc__
    inspect.iscoroutinefunction = iscoroutinefunction
