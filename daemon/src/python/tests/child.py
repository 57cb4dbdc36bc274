"""A fake daemon: it runs programs in real children that are started from the real bootstrap text, and answers their calls."""

import fcntl
import json
import os
import pathlib
import re
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

DEADLINE_SECONDS = 60

_directory_lock = threading.Lock()

sys.set_int_max_str_digits(0)


def bootstrap():
    """The joined text: from the file that the Rust test names, else joined here by the order that mod.rs gives."""
    given = os.environ.get("PTC_BOOTSTRAP")
    if given:
        return pathlib.Path(given).read_text(encoding="utf-8")
    return joined()


def joined():
    order = re.findall(r'part!\("(\w+)"\)', (ROOT / "mod.rs").read_text(encoding="utf-8"))
    parts = [f"\npart(\"{name}\", r'''{(ROOT / 'ptc' / (name + '.py')).read_text(encoding='utf-8')}''')\n" for name in order]
    end = "\nfrom ptc.main import main\n\nmain()\n"
    return (ROOT / "loader.py").read_text(encoding="utf-8") + "".join(parts) + end


BOOTSTRAP = bootstrap()


class Outcome:
    """What a program left behind."""

    def __init__(self):
        self.done = None
        self.stdout = b""
        self.stderr = b""
        self.messages = []
        self.status = None

    @property
    def calls(self):
        return [message for message in self.messages if message["t"] == "call"]

    @property
    def out(self):
        return self.stdout.decode("utf-8", "replace")

    @property
    def error(self):
        return self.done["error"]


class Reply:
    """Members of a result frame after the id."""

    def __init__(self, **members):
        self.body = json.dumps(members)


def value(text):
    """A reply with one text block."""
    return Reply(ok=True, mcp={"texts": [text], "notes": [], "keep_text": False})


def failure(message, code="tool_error"):
    """A reply that becomes a ToolError."""
    return Reply(ok=False, code=code, message=message)


def echo(call):
    """Answers a call with its own arguments."""
    return value(json.dumps(call["args"]))


def spec(name, *params, doc=None, signature=None):
    """A tool as the start message describes it; params are names, or (name, type, default) for optional ones."""
    _, server, attr = name.split("__", 2)
    described = []
    for param in params:
        if isinstance(param, str):
            described.append({"name": param, "type": "str", "required": True})
        else:
            described.append({"name": param[0], "type": param[1], "required": False, "default": param[2]})
    made = {"name": name, "server": server, "attr": attr, "params": described}
    if doc is not None:
        made["doc"] = doc
    if signature is not None:
        made["signature"] = signature
    return made


ECHO = {"name": "mcp__s__echo", "server": "s", "attr": "echo"}


def _is_inherited(fd):
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


class Child:
    """One child process with its channel and pipes."""

    def __init__(self, python=sys.executable):
        self.directory = tempfile.TemporaryDirectory()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        # Above 3, so that no target is one of the sources. None of them is inherited: dup2 in the child makes the targets so.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (theirs.fileno(), out_write, err_write)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, high[1], 1),
            (os.POSIX_SPAWN_DUP2, high[2], 2),
            (os.POSIX_SPAWN_DUP2, high[0], 3),
            *((os.POSIX_SPAWN_CLOSE, fd) for fd in range(4, 100) if _is_inherited(fd)),
        ]
        self.started = time.perf_counter()
        with _directory_lock:
            here = os.getcwd()
            os.chdir(self.directory.name)
            self.pid = os.posix_spawn(python, [python, "-I", "-S", "-B", "-c", BOOTSTRAP], {}, file_actions=actions)
            os.chdir(here)
        for fd in (out_write, err_write, *high):
            os.close(fd)
        theirs.close()
        self.channel, self.out, self.err = ours, out_read, err_read
        self._data = b""
        self.eof = False

    def send(self, body):
        data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
        self.channel.sendall(len(data).to_bytes(4, "big") + data)

    def start(self, code, tools=(ECHO,), limits=None, servers=None):
        limits = {"max_output_bytes": 65536, "max_emit_bytes": 65536, "timeout_seconds": 60, **(limits or {})}
        if servers is None:
            servers = [{"name": name, "ident": name} for name in dict.fromkeys(tool["server"] for tool in tools)]
        self.send(json.dumps({"t": "start", "code": code, "tools": list(tools), "limits": limits, "servers": servers}))

    def receive(self):
        """Messages that have arrived; blocks for at least some bytes."""
        try:
            data = self.channel.recv(1 << 20)
        except ConnectionResetError:
            data = b""  # It ended without reading our last replies.
        if not data:
            self.eof = True
        self._data += data
        messages = []
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if len(self._data) < 4 + size:
                break
            messages.append(json.loads(self._data[4 : 4 + size]))
            self._data = self._data[4 + size :]
        return messages

    def wait_ready(self):
        message = self.receive()[0]
        assert message["t"] == "ready", message
        return time.perf_counter() - self.started

    def follow(self, answer, kill_after=None):
        """Serve the program to its end, or until `kill_after` has been printed.

        `answer(message, messages so far)` gives a Reply to this call, or a list of `(id, Reply)`, or None.
        """
        outcome = Outcome()
        deadline = time.monotonic() + DEADLINE_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self.out, selectors.EVENT_READ, "stdout")
            selector.register(self.err, selectors.EVENT_READ, "stderr")
            selector.register(self.channel, selectors.EVENT_READ, "channel")
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    os.kill(self.pid, signal.SIGKILL)
                    raise AssertionError(f"program did not end; so far {outcome.stdout!r} {outcome.stderr!r} {outcome.messages!r}")
                for key, _ in selector.select(left):
                    if key.data == "channel":
                        for message in self.receive():
                            self._take(message, outcome, answer)
                        if self.eof:
                            selector.unregister(self.channel)
                        continue
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        setattr(outcome, key.data, getattr(outcome, key.data) + data)
                        if kill_after is not None and kill_after in getattr(outcome, key.data):
                            os.kill(self.pid, signal.SIGKILL)
                            kill_after = None
                    else:
                        selector.unregister(key.fd)
        outcome.status = os.waitpid(self.pid, 0)[1]
        self.close()
        return outcome

    def _take(self, message, outcome, answer):
        outcome.messages.append(message)
        if message["t"] == "done":
            assert outcome.done is None, "two done frames"
            outcome.done = message
            return
        replies = answer(message, outcome.messages) if message["t"] in ("call", "cancel") else None
        if isinstance(replies, Reply):
            replies = [(message["id"], replies)]
        for number, reply in replies or ():
            try:
                self.send(f'{{"t":"result","id":{number},' + reply.body[1:])
            except BrokenPipeError:
                pass  # The program ended meanwhile.

    def close(self):
        self.channel.close()
        os.close(self.out)
        os.close(self.err)
        self.directory.cleanup()


def run(code, answer=echo, **start):
    """Run one program and give its Outcome. `answer` maps a call to a Reply."""
    child = Child()
    child.wait_ready()
    child.start(code, **start)

    def by_call(message, messages):
        return answer(message) if message["t"] == "call" else None

    return child.follow(by_call)


def run_all(cases, answer=echo, **start):
    """Outcomes of several programs, in their order; some run at the same time."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda code: run(code, answer, **start), cases))
