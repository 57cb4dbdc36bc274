"""First lines of the child's bootstrap text: they make the runtime's files importable, though none of them is on disk.

The daemon joins this file and every file of `ptc/` into one text for `python -c`. Each file becomes a module `ptc.NAME`, compiled
under the name `<ptc/NAME.py>`, by which the runtime knows its own frames and keeps them out of what the program's author sees.
"""

import sys

# TLS cannot work without a network. Not loading it makes the start of every child cheaper.
sys.modules["ssl"] = None

_package = type(sys)("ptc")
_package.__path__ = []
sys.modules["ptc"] = _package
_sources = {}


def part(name, source):
    """Keep one file of the runtime until something imports it."""
    _sources["ptc." + name] = source


class _Finder:
    """Imports the parts: those that a program may never need are not even compiled before."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        if fullname not in _sources:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, _Finder)

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        name = module.__name__
        code = compile(_sources[name], f"<{name.replace('.', '/')}.py>", "exec", dont_inherit=True)
        exec(code, module.__dict__)


sys.meta_path.insert(0, _Finder)
