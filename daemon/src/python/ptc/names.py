"""The virtual package `servers`, and errors that help when a program imports tools in another way.

`servers.SERVER` holds each server's tools by their short names. It is made of the same functions as the global names; nothing is
read from disk for it. Server modules are made when they are first asked for.
"""

import importlib.machinery
import re
import sys
import types


def install(toolbox, servers):
    """Make `import servers` work. `servers` are the `{"name", "ident", "error"}` of the start message."""
    package = ServersPackage(toolbox, servers)
    sys.modules["servers"] = package
    sys.meta_path.insert(0, _Servers(package))
    sys.meta_path.append(_ToolNames(toolbox, package))


def of_absent_servers(toolbox, servers, source):
    """Functions for the tools in the source whose server is down: its tools are not known, but a call can say why it fails."""
    absent = _absent(toolbox, servers)
    prefixes = tuple(prefix for server in absent for prefix in (f"mcp__{server['ident']}__", _prefix(server)))
    if not prefixes:
        return {}
    named = (name for name in re.findall(r"\bmcp__\w+", source) if name.startswith(prefixes) and name not in toolbox.specs)
    return {name: toolbox.absent(name) for name in named}


def _prefix(server):
    """What the global names of the server's tools begin with."""
    return f"mcp__{server['name'].replace('-', '_')}__"


def _absent(toolbox, servers):
    """The servers that are not ready and have left no tools."""
    present = {spec["server"] for spec in toolbox.specs.values()}
    return [server for server in servers if server.get("error") and server["ident"] not in present]


class ServersPackage(types.ModuleType):
    """The module `servers`."""

    def __init__(self, toolbox, servers):
        super().__init__("servers", "The tools of every server, one module for each.")
        self.__path__ = []
        self.__package__ = "servers"
        self.__spec__ = importlib.machinery.ModuleSpec("servers", None, is_package=True)
        self._toolbox = toolbox
        tools = {server["ident"]: {} for server in servers}
        for name, spec in toolbox.specs.items():
            tools.setdefault(spec["server"], {})[spec["attr"]] = toolbox.functions[name]
        self._tools = tools
        self._absent = {server["ident"]: _prefix(server) for server in _absent(toolbox, servers)}
        self.__all__ = list(tools)

    def __getattr__(self, name):
        if name.startswith("_") or name not in self._tools:
            raise AttributeError(self._unknown(name))
        return self._module(name)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._tools})

    def _module(self, name):
        prefix = self._absent.get(name)
        absent = None if prefix is None else lambda tool: self._toolbox.absent(prefix + tool)
        module = ServerModule(name, self._tools[name], absent)
        sys.modules[module.__name__] = module
        self.__dict__[name] = module
        return module

    def _unknown(self, name):
        return f"there is no server {name!r}{_known(name, self._tools)}"


class ServerModule(types.ModuleType):
    """The module `servers.SERVER`: a function for each tool. `absent` makes those of a server that is down."""

    def __init__(self, name, tools, absent):
        super().__init__(f"servers.{name}", f"The tools of the server {name}.")
        self.__path__ = []  # So that a wrong import from here asks our finder, which knows the names.
        self.__package__ = self.__name__
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, None, is_package=True)
        self.__dict__.update(tools)
        self.__all__ = list(tools)
        self._absent = absent

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self._absent is not None and not name.startswith("_"):
            return self._absent(name)
        raise AttributeError(f"{self.__name__} has no tool {name!r}{_known(name, self.__all__)}")


class _Servers:
    """Finds `servers.X`, first of all finders."""

    def __init__(self, package):
        self._package = package

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("servers."):
            return None
        server, _, tool = fullname.removeprefix("servers.").partition(".")
        if server not in self._package._tools:
            raise ImportError(self._package._unknown(server), name=fullname)
        if tool:
            module = getattr(self._package, server)
            if tool in module.__all__:
                raise ImportError(f"{tool} is a function: write `from {module.__name__} import {tool}`", name=fullname)
            raise ImportError(f"{module.__name__} has no tool {tool!r}{_known(tool, module.__all__)}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        return getattr(self._package, spec.name.removeprefix("servers."))

    def exec_module(self, module):
        pass


class _ToolNames:
    """Explains imports of tools as if they were modules; last of all finders, so real modules come first."""

    def __init__(self, toolbox, package):
        self._toolbox = toolbox
        self._package = package

    def find_spec(self, fullname, path=None, target=None):
        if fullname.startswith("mcp__"):
            found = _similar(fullname, self._toolbox.specs, 1)
            example = found[0] if found else fullname
            raise ImportError(f"tools need no import: they are functions already, call `await {example}(...)`", name=fullname)
        if fullname in self._package._tools:
            raise ImportError(f"{fullname!r} is a server, not a module: write `from servers import {fullname}`", name=fullname)
        return None


def _known(name, names):
    """What there is instead. Python may add its own "Did you mean" behind it."""
    names = list(names)
    close = _similar(name, names, 3)
    if close:
        return f" (similar: {', '.join(close)})"
    if not names:
        return " (there are none)"
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f" (there are: {shown})"


def _similar(name, names, count):
    import difflib  # Needed for mistakes only.

    return difflib.get_close_matches(name, names, count, 0.5)
