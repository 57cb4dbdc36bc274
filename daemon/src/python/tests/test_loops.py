"""All the ways in which programs start event loops."""

import unittest

from tests.child import run_all

MAIN = "import asyncio, threading\nasync def main(x):\n    await asyncio.sleep(0)\n    return (await mcp__s__echo(x=x))['x']\n"

CASES = {
    "plain script": ("if __name__ == '__main__':\n    print(asyncio.run(main(1)))", "1\n"),
    "twice": ("print(asyncio.run(main(1)), asyncio.run(main(2)))", "1 2\n"),
    "run after a top-level await": ("await asyncio.sleep(0)\nprint(asyncio.run(main(1)))", "1\n"),
    "run of a call itself": ("print(asyncio.run(mcp__s__echo(x=1)))", "{'x': 1}\n"),
    "run of a call, nested": ("await asyncio.sleep(0)\nprint(asyncio.run(mcp__s__echo(x=1)))", "{'x': 1}\n"),
    "current loop": ("loop = asyncio.get_event_loop()\nprint(loop.run_until_complete(main(1)))", "1\n"),
    "current loop after run": ("asyncio.run(main(1))\nprint(asyncio.get_event_loop().run_until_complete(main(2)))", "2\n"),
    "the running loop itself": ("loop = asyncio.get_event_loop()\nawait main(0)\nprint(loop.run_until_complete(main(1)))\nprint(await main(2))", "1\n2\n"),
    "a task of the running loop": ("task = asyncio.create_task(main(1))\nprint(asyncio.get_running_loop().run_until_complete(task))\nprint(await main(2))", "1\n2\n"),
    "gather on the running loop": (
        "await main(0)\nloop = asyncio.get_event_loop()\nprint(loop.run_until_complete(asyncio.gather(*[main(i) for i in range(5)])))",
        "[0, 1, 2, 3, 4]\n",
    ),
    "nested in a task among others": (
        "def sync(i):\n    return asyncio.run(main(i))\nasync def task(i):\n    await asyncio.sleep(0)\n    return sync(i)\nprint(await asyncio.gather(*[task(i) for i in range(5)]))",
        "[0, 1, 2, 3, 4]\n",
    ),
    "running loop nested in tasks": (
        "loop = asyncio.get_event_loop()\nasync def task(i):\n    await asyncio.sleep(0)\n    return loop.run_until_complete(main(i))\nprint(await asyncio.gather(*[task(i) for i in range(5)]))",
        "[0, 1, 2, 3, 4]\n",
    ),
    "run inside run": ("def sync():\n    return asyncio.run(main(1))\nasync def outer():\n    return sync()\nprint(asyncio.run(outer()))", "1\n"),
    "outer calls go on after a nested run": (
        "task = asyncio.create_task(main(1))\nawait asyncio.sleep(0)\nprint(asyncio.run(main(2)))\nprint(await task, asyncio.current_task() is not None)",
        "2\n1 True\n",
    ),
    "runner": ("with asyncio.Runner() as runner:\n    print(runner.run(main(1)), runner.run(main(2)))", "1 2\n"),
    "runner, nested": ("await main(0)\nwith asyncio.Runner() as runner:\n    print(runner.run(main(1)), runner.run(main(2)))\nprint(await main(3))", "1 2\n3\n"),
    "own loop": ("loop = asyncio.new_event_loop()\nprint(loop.run_until_complete(main(1)))\nloop.close()", "1\n"),
    "own loop, nested": ("await main(0)\nloop = asyncio.new_event_loop()\nprint(loop.run_until_complete(main(1)))\nloop.close()\nprint(await main(2))", "1\n2\n"),
    "thread": ("t = threading.Thread(target=lambda: print(asyncio.run(main(1))))\nt.start()\nt.join()", "1\n"),
    "thread under a running loop": ("t = threading.Thread(target=lambda: print(asyncio.run(main(1))))\nawait main(0)\nt.start()\nt.join()", "1\n"),
    "to_thread": ("print(await asyncio.to_thread(lambda: asyncio.run(main(1))))", "1\n"),
    "into the loop from a thread": (
        "loop = asyncio.get_running_loop()\nprint(await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(mcp__s__echo(x=1), loop).result()))",
        "{'x': 1}\n",
    ),
    "thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    print(list(pool.map(lambda i: asyncio.run(main(i)), range(6))))",
        "[0, 1, 2, 3, 4, 5]\n",
    ),
    "task group": ("async with asyncio.TaskGroup() as g:\n    ts = [g.create_task(mcp__s__echo(x=i)) for i in range(2)]\nprint([t.result() for t in ts])", "[{'x': 0}, {'x': 1}]\n"),
    "every wrapper takes a call": (
        "print(await asyncio.wait_for(mcp__s__echo(x=1), 9))\n"
        "print(await asyncio.shield(mcp__s__echo(x=2)))\n"
        "print(await asyncio.ensure_future(mcp__s__echo(x=3)))\n"
        "done, _ = await asyncio.wait([asyncio.create_task(mcp__s__echo(x=4))])\n"
        "print(done.pop().result())\n"
        "for first in asyncio.as_completed([mcp__s__echo(x=5)]):\n    print(await first)\n"
        "async with asyncio.timeout(9):\n    print(await asyncio.gather(mcp__s__echo(x=6), main(7)))",
        "{'x': 1}\n{'x': 2}\n{'x': 3}\n{'x': 4}\n{'x': 5}\n[{'x': 6}, 7]\n",
    ),
    "streams without sendmsg": (
        "import socket\ndef refuse(*_):\n    raise PermissionError\nsocket.socket.sendmsg = refuse\n"
        "a, b = socket.socketpair()\nreader, kept = await asyncio.open_connection(sock=a)\nunread, writer = await asyncio.open_connection(sock=b)\n"
        "async def send():\n    writer.write(b'x' * 3000000)\n    await writer.drain()\n    writer.close()\n"
        "print(len((await asyncio.gather(reader.read(), send()))[0]))",
        "3000000\n",
    ),
    "semaphore made outside": (
        "gate = asyncio.Semaphore(2)\nasync def one(i):\n    async with gate:\n        return await main(i)\nasync def all():\n    return await asyncio.gather(*[one(i) for i in range(5)])\nprint(asyncio.run(all()))",
        "[0, 1, 2, 3, 4]\n",
    ),
}


class Loops(unittest.TestCase):
    def test_every_way_works(self):
        outcomes = run_all([MAIN + code for code, _ in CASES.values()])
        for (name, (_, out)), outcome in zip(CASES.items(), outcomes, strict=True):
            with self.subTest(name):
                self.assertEqual((outcome.done["error"], outcome.out, outcome.stderr), (None, out, b""))
                self.assertEqual(outcome.done["warnings"], [])


if __name__ == "__main__":
    unittest.main()
