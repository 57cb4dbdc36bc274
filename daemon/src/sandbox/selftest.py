# Tries the doors of a sandbox from inside, and that the interpreter still works. Names of what it is given stand in
# CANARY, FOLDER, SOCKET, HOME, DAEMON and LEVEL, defined above this text. Answers one JSON object on descriptor 3.
import json
import os

through, broken, tried = [], [], 0


def blocked(name, attempt):
    """The attempt must fail with an error of the system."""
    global tried
    tried += 1
    try:
        attempt()
    except OSError:
        pass
    except BaseException as error:
        broken.append(f"{name}: {error!r}")
    else:
        through.append(name)


def works(name, use):
    global tried
    tried += 1
    try:
        use()
    except BaseException as error:
        broken.append(f"{name}: {error!r}")


def connect():
    import socket

    socket.socket(socket.AF_UNIX).connect(SOCKET)


def internet():
    import socket

    socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def fork():
    if os.fork() == 0:
        os._exit(0)


def raw_call(number, *arguments):
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "syscall")


def raise_limit():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (hard + 4096, hard + 4096))
    except ValueError as error:
        raise OSError(str(error))


def same_as_absent(path):
    """Fails as open() would when an existing path cannot be told from a missing one."""
    answers = []
    for candidate in (path, path + ".absent"):
        try:
            os.stat(candidate)
            answers.append(0)
        except OSError as error:
            answers.append(error.errno)
    if answers[0] == answers[1]:
        raise OSError("the same")


linux = os.uname().sysname == "Linux"
blocked("reading a file of the user", lambda: open(CANARY).read())
blocked("writing a file of the user", lambda: open(CANARY, "a"))
blocked("creating a file beside it", lambda: open(FOLDER + "/new", "x"))
blocked("listing a folder of the user", lambda: os.listdir(FOLDER))
blocked("listing the home folder", lambda: os.listdir(HOME))
blocked("reading /etc/passwd", lambda: open("/etc/passwd").read())
blocked("following a link out of scratch", lambda: (os.symlink(CANARY, "link"), open("link").read()))
blocked("a hard link into scratch", lambda: os.link(CANARY, "hard"))
blocked("changing the standard library", lambda: open(os.__file__, "r+"))
blocked("a Unix socket", connect)
blocked("an internet socket", internet)
blocked("a second process", fork)
blocked("another executable", lambda: os.execv("/bin/sh", ["sh", "-c", ":"]))
blocked("a signal to ptcd", lambda: os.kill(DAEMON, 0))
blocked("a higher limit", raise_limit)
if linux:
    machine = os.uname().machine
    blocked("a new namespace", lambda: raw_call(272 if machine == "x86_64" else 97, 0x10000000))
    blocked("the keyring", lambda: raw_call(250 if machine == "x86_64" else 219, 0, -3, 0))
    blocked("tracing", lambda: raw_call(101 if machine == "x86_64" else 117, 0))
    blocked("the process's own memory file", lambda: open("/proc/self/mem", "rb"))
if LEVEL != "landlock":
    blocked("telling that a file exists", lambda: same_as_absent(CANARY))
if LEVEL == "linux" and os.uname().nodename != "sandbox":
    through.append("the host name")
if set(os.environ) - {"LC_CTYPE", "__CF_USER_TEXT_ENCODING", "__PYVENV_LAUNCHER__"}:
    through.append("the environment")
for number in range(4, 256):
    try:
        os.fstat(number)
        through.append(f"descriptor {number}")
    except OSError:
        pass


def scratch():
    with open("file", "w") as file:
        file.write("x")
    os.mkdir("folder")
    os.rename("file", "folder/file")
    assert open("folder/file").read() == "x"
    os.remove("folder/file")
    os.rmdir("folder")


def event_loop():
    import asyncio

    async def main():
        await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(lambda: 1))

    asyncio.run(main())


works("files in the scratch directory", scratch)
works("an event loop with a thread", event_loop)
works("random numbers", lambda: os.urandom(8))
works("the null device", lambda: open(os.devnull, "w").write("x"))
works("foreign functions", lambda: __import__("ctypes").CDLL(None).getpid())
works("decimal numbers", lambda: __import__("decimal").Decimal(1) / 3)
answer = json.dumps({"tried": tried, "through": through, "broken": broken}).encode() + b"\n"
while answer:
    answer = answer[os.write(3, answer) :]
