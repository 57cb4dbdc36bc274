"""The text of a program made runnable: fences removed, compiled as module code with top-level `await`, `return` allowed.

Line numbers are always those of the text that was sent.
"""

import ast
import builtins
import inspect
import linecache
import re
import sys
import warnings

from ptc.forgotten import PROGRAM_FILE

RETURN = "__ptc_return__"
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*[\w+.-]*[ \t]*$")


class ProgramReturn(BaseException):
    """Carries a top-level `return` out of the module's code."""


def source_of(text):
    """The Python source in a program's text: a ``` fence around it and a byte order mark are taken off, lines keep their numbers."""
    lines = text.removeprefix("\ufeff").split("\n")
    filled = [index for index, line in enumerate(lines) if line.strip()]
    if filled and _FENCE.match(lines[filled[0]].rstrip("\r")):
        fence = lines[filled[0]].strip()[:3]
        lines[filled[0]] = ""
        if len(filled) > 1 and lines[filled[-1]].strip().startswith(fence) and _FENCE.match(lines[filled[-1]].rstrip("\r")):
            lines[filled[-1]] = ""
    return "\n".join(lines)


def compile_program(source):
    """Code of the program. SyntaxError (and ValueError for a NUL byte) as Python raises them, with the source line filled in."""
    # Tracebacks find the program's lines here, though no file has them.
    linecache.cache[PROGRAM_FILE] = (len(source), None, source.splitlines(True), PROGRAM_FILE)
    try:
        return _compile(source)
    except SyntaxError as error:
        failure = error
    if "'return' outside function" in str(failure.msg):
        try:
            return _compile_with_returns(source)
        except SyntaxError as error:
            failure = error
    if failure.text is None and failure.lineno:
        failure.text = linecache.getline(PROGRAM_FILE, failure.lineno) or None
    raise failure


def is_async(code):
    """Whether the module's code awaits, so that running it gives a coroutine."""
    return bool(code.co_flags & inspect.CO_COROUTINE)


def left_out(source):
    """What the author of a program without any output seems to have forgotten, or None."""
    body = ast.parse(source).body
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    idle = (*functions, ast.ClassDef, ast.Import, ast.ImportFrom)
    if any(isinstance(node, functions) for node in body) and all(isinstance(node, idle) or _is_docstring(node) for node in body):
        return "the program defines functions but calls none of them; end it with a call, such as `await main()`"
    if body and isinstance(body[-1], ast.Expr) and isinstance(body[-1].value, (ast.Name, ast.Subscript, ast.Attribute, ast.BinOp, ast.List, ast.Dict, ast.ListComp)):
        return f"the value of the last line {body[-1].lineno} is not shown by itself; print() or emit() it"
    return None


def _is_docstring(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def new_main():
    """A fresh `__main__` for the program: classes, pickling and annotations look their module up there."""
    module = type(sys)("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    return module


def _compile(source, flags=0):
    return compile(source, PROGRAM_FILE, "exec", flags=flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


def _compile_with_returns(source):
    tree = _Returns().visit(_compile(source, ast.PyCF_ONLY_AST))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # The first compilation has said them all.
        return _compile(ast.fix_missing_locations(tree))


class _Returns(ast.NodeTransformer):
    """Turns each top-level `return x` into an exception, which no handler of the program's own gets to see."""

    def visit_Return(self, node):
        value = node.value or ast.Constant(None)
        call = ast.Call(ast.Name(RETURN, ast.Load()), [value], [])
        return _at(node, ast.Raise(call, None))

    def visit_Try(self, node):
        self.generic_visit(node)
        if node.handlers:
            passing = ast.ExceptHandler(ast.Attribute(ast.Name(RETURN, ast.Load()), "signal", ast.Load()), None, [ast.Raise()])
            node.handlers.insert(0, _at(node.handlers[0], passing))
        return node

    def _leave(self, node):
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _leave


def _at(node, new):
    for child in ast.walk(new):
        if "lineno" in getattr(child, "_attributes", ()) and not hasattr(child, "lineno"):
            ast.copy_location(child, node)
    return new
