"""A tool's result as a Python value. The rules, in this order:

1. The text blocks count; everything else has already become a note such as `[non-text content omitted: image (image/png)]`.
2. A structured object that a text repeats as JSON, or that has any other keys than exactly `result`, is the value.
   Notes: the texts that are not that same JSON.
3. A structured object `{"result": x}` that no text repeats is a wrapper: the value is x, and a string x is decoded as JSON where that is
   possible. Structured content that is not an object is the value as it is. Notes: the texts that neither equal x nor are its JSON;
   none when x is a list and the texts are its items one by one, as the Python SDK writes lists.
4. Without structured content and without text the value is None.
5. A single text is decoded as JSON where that is possible (so `true` and `12` become bool and int), else it stays a string: `007` and
   the empty text are no JSON and stay strings. The tokens NaN and Infinity are read as floats, as Python does.
6. Of several texts, if exactly one is JSON, that is the value and the others are notes; else all are joined by line breaks and treated as
   one text, so several JSON blocks arrive as one string that holds all of them.
7. Blank notes are dropped; others are attached as the list `_notes`: to the object itself, else in `{"data": value, "_notes": [...]}`.

`keep_text` says that the server declares a string as its result: then no string is decoded. Nothing is ever changed in digits: integers
of any size are exact.
"""

import json

_JSON_STARTS = frozenset('{["-0123456789tfnNI')
_NOT_JSON = object()
_loads = json.loads


def value_of(result):
    """The Python value of `{"texts": [str], "structured": json or absent, "notes": [str], "keep_text": bool}`."""
    texts = result.get("texts") or []
    notes = list(result.get("notes") or [])
    structured = result.get("structured")
    keep_text = bool(result.get("keep_text"))
    if structured is None:
        value, extra = _from_texts(texts, keep_text)
    else:
        value, extra = _from_structured(structured, texts, keep_text)
    notes += (text for text in extra if text.strip())
    if not notes:
        return value
    if isinstance(value, dict):
        value["_notes"] = notes
        return value
    return {"data": value, "_notes": notes}


def decode(text):
    """The value of a JSON text, or `_NOT_JSON`. Most prose is recognised by its first character."""
    if text.lstrip()[:1] not in _JSON_STARTS:
        return _NOT_JSON
    try:
        return _loads(text)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _from_structured(structured, texts, keep_text):
    decoded = [decode(text) for text in texts]
    if isinstance(structured, dict):
        repeated = any(_same(value, structured) for value in decoded)
        if repeated or structured.keys() != {"result"}:
            return structured, [text for text, value in zip(texts, decoded) if not _same(value, structured)]
        inner = structured["result"]
    else:
        inner = structured
    if isinstance(inner, list) and len(inner) == len(texts) and all(map(_renders, texts, decoded, inner)):
        notes = []
    else:
        notes = [text for text, value in zip(texts, decoded) if not _renders(text, value, inner)]
    if isinstance(inner, str) and isinstance(structured, dict) and not keep_text:
        parsed = decode(inner)
        inner = inner if parsed is _NOT_JSON else parsed
    return inner, notes


def _from_texts(texts, keep_text):
    if not texts:
        return None, []
    if keep_text:
        return "\n".join(texts), []
    if len(texts) > 1:
        decoded = [decode(text) for text in texts]
        found = [index for index, value in enumerate(decoded) if value is not _NOT_JSON]
        if len(found) == 1:
            return decoded[found[0]], [text for index, text in enumerate(texts) if index != found[0]]
    text = "\n".join(texts)
    value = decode(text)
    return (text if value is _NOT_JSON else value), []


def _renders(text, value, other):
    """Whether a text, or the value it is the JSON of, says the same as another value."""
    return text == other or _same(value, other)


def _same(value, other):
    if value is _NOT_JSON:
        return False
    try:
        return value == other
    except RecursionError:
        return False
