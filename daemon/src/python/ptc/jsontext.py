"""Python values to JSON text, for arguments and for the emitted value.

The text is ASCII with Python's own separators; integers keep every digit. What JSON cannot say is refused, with the place in the value
where it stands: NaN and infinities, objects of other types, cycles. Tuples become arrays and plain keys become strings, as `json` does.
"""

import json
import math
import re

_encode = json.JSONEncoder(allow_nan=False).encode
_SURROGATE = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|\\ud[89a-f]..")
_HALF = re.compile("[\ud800-\udfff]")
_SCALARS = (str, int, float, bool, type(None))


class Unencodable(Exception):
    """Why a value has no JSON text. `kind` is the exception class a caller should raise."""

    def __init__(self, kind, reason):
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


def encode(value, name):
    """JSON text of `value`, which errors call `name`. It may hold escapes of lone surrogates: see `has_lone_surrogates`."""
    try:
        return _encode(value)
    except RecursionError:
        raise Unencodable(ValueError, f"{name} is nested too deeply or contains itself") from None
    except (TypeError, ValueError) as error:
        found = _find_fault(value, name, ())
        if found is None:
            found = Unencodable(type(error) if type(error) in (TypeError, ValueError) else ValueError, f"{name}: {error}")
        raise found from None


def has_lone_surrogates(text):
    """Whether JSON text made by `encode` escapes half of a surrogate pair, which strict readers refuse."""
    return "\\ud" in text and replace_lone_surrogates(text) != text


def replace_lone_surrogates(text):
    """The text with U+FFFD in place of lone surrogates."""
    return _SURROGATE.sub(lambda found: "\\ufffd" if len(found[0]) == 6 else found[0], text)


def find_surrogate(value, name):
    """Where in `value` a lone surrogate stands, as a Python expression."""
    if isinstance(value, str):
        return name if _HALF.search(value) else None
    for key, item in _items(value):
        if isinstance(key, str) and _HALF.search(key):
            return f"a key of {name}"
        found = find_surrogate(item, f"{name}[{key!r}]")
        if found:
            return found
    return None


def _find_fault(value, name, parents):
    if isinstance(value, float) and not math.isfinite(value):
        return Unencodable(ValueError, f"{name} is {value!r}, which JSON cannot hold; use None or a string")
    if isinstance(value, _SCALARS):
        return None
    if not isinstance(value, (dict, list, tuple)):
        return Unencodable(TypeError, f"{name} is {describe(value)}")
    if any(value is parent for parent in parents):
        return Unencodable(ValueError, f"{name} contains itself")
    if len(parents) > 200:
        return Unencodable(ValueError, f"{name} is nested too deeply")
    for key, item in _items(value):
        if isinstance(value, dict):
            if not isinstance(key, _SCALARS):
                return Unencodable(TypeError, f"{name} has the key {short(key)}; keys must be strings, not {type(key).__name__}")
            if isinstance(key, float) and not math.isfinite(key):
                return Unencodable(ValueError, f"{name} has the key {key!r}, which JSON cannot hold")
        found = _find_fault(item, f"{name}[{short(key)}]", (*parents, value))
        if found is not None:
            return found
    return None


def _items(value):
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def describe(value):
    """What a value of a type unknown to JSON is, and how to turn it into one that is known."""
    name = type(value).__name__
    advice = advice_for(name)
    if advice is None and hasattr(type(value), "__dataclass_fields__"):
        advice = "use dataclasses.asdict(...)"
    return f"of type {name}, which is not JSON" + (f"; {advice}" if advice else "")


def advice_for(name):
    """How a value of the type with this name becomes one that JSON knows, or None."""
    return {
        "set": "use list(...) or sorted(...)",
        "frozenset": "use list(...) or sorted(...)",
        "bytes": "use .decode() or base64",
        "bytearray": "use .decode() or base64",
        "datetime": "use .isoformat()",
        "date": "use .isoformat()",
        "time": "use .isoformat()",
        "Decimal": "use float(...) or str(...)",
        "Fraction": "use float(...) or str(...)",
        "generator": "use list(...)",
        "map": "use list(...)",
        "filter": "use list(...)",
        "zip": "use list(...)",
        "range": "use list(...)",
        "dict_keys": "use list(...)",
        "dict_values": "use list(...)",
        "dict_items": "use list(...) or dict(...)",
        "coroutine": "use await",
        "ToolCall": "use await",
        "Task": "use await",
        "Future": "use await",
    }.get(name)


def short(value):
    """A repr that fits on a line and never fails."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
