"""Hints: one last line under an error that says what is valid instead. Compiled only when a program fails."""

import linecache

from ptc.tools import PROGRAM_FILE


def hint(error, toolbox, servers, unawaited):
    """A hint for this exception, or None."""
    if unawaited:
        return "; ".join(_never_awaited(*call) for call in _grouped(unawaited)[:5])
    return None


def unawaited_error(calls):
    """Error text for a program that ended well but never awaited some of its calls."""
    parts = []
    for tool, line, count in _grouped(calls)[:10]:
        source = linecache.getline(PROGRAM_FILE, line).strip() if line else ""
        if source:
            parts.append(f'  File "{PROGRAM_FILE}", line {line}\n    {source}\n')
        parts.append(f"RuntimeError: {_never_awaited(tool, line, count)}\n")
    return "".join(parts)


def _grouped(calls):
    counts = {}
    for call in calls:
        counts[call] = counts.get(call, 0) + 1
    return [(tool, line, count) for (tool, line), count in counts.items()]


def _never_awaited(tool, line, count):
    place = f" on line {line}" if line else ""
    times = f" ({count} calls)" if count > 1 else ""
    return f"{tool}(...){place} was never awaited{times}, so the tool did not run; write `await {tool}(...)`"
