"""Frames, and calls that really run at the same time."""

import json
import os
import random
import time
import unittest

from tests.child import Child, Reply, echo, run, value
from ptc.channel import FrameReader, decode


class Source:
    """A raw descriptor that hands out its bytes in given pieces; an empty piece means that nothing is there yet."""

    def __init__(self, pieces):
        self.pieces = list(pieces)

    def readinto(self, target):
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        if not piece:
            return None
        count = min(len(piece), len(target))
        target[:count] = piece[:count]
        if count < len(piece):
            self.pieces.insert(0, piece[count:])
        return count


def frame(body):
    return len(body).to_bytes(4, "big") + body


class Frames(unittest.TestCase):
    def read_all(self, pieces):
        reader = FrameReader(Source(pieces))
        frames = []
        while not reader.ended:
            frames += reader.read_available()
        return [bytes(found) for found in frames]

    def test_any_chunking_gives_the_same_frames(self):
        generator = random.Random(7)
        for _ in range(50):
            bodies = [os.urandom(generator.choice((0, 1, 3, 100, 65532, 65536, 200_000))) for _ in range(generator.randint(1, 5))]
            stream, pieces, start = b"".join(map(frame, bodies)), [], 0
            while start < len(stream):
                size = generator.choice((1, 3, 5, 5000, 65536, 1 << 20))
                pieces += [stream[start : start + size]] + [b""] * generator.randint(0, 1)
                start += size
            self.assertEqual(self.read_all(pieces), bodies)

    def test_half_a_frame_at_the_end_is_dropped(self):
        self.assertEqual(self.read_all([frame(b"a") + frame(b"bcd")[:-1]]), [b"a"])

    def test_undecodable_result_fails_its_own_call(self):
        message = decode(b'{"t":"result","id":7,"ok":true,"value":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
        self.assertEqual((message["id"], message["ok"], message["code"]), (7, False, "malformed"))
        self.assertIn("nested too deeply", message["message"])


def gathered(count):
    return f"import asyncio\nr = await asyncio.gather(*[mcp__s__echo(x=i) for i in range({count})])\nprint([v['x'] for v in r] == list(range({count})))"


def follow(code, answer, **start):
    child = Child()
    child.wait_ready()
    child.start(code, **start)
    return child.follow(answer)


class Calls(unittest.TestCase):
    def test_a_hundred_calls_are_open_at_once_and_answered_in_any_order(self):
        def answer(message, messages):
            calls = [seen for seen in messages if seen["t"] == "call"]
            if len(calls) < 100:
                return None
            random.shuffle(calls)
            return [(call["id"], echo(call)) for call in calls]

        outcome = follow(gathered(100), answer)
        self.assertEqual((outcome.error, outcome.out), (None, "True\n"))
        self.assertEqual(len({call["id"] for call in outcome.calls}), 100)

    def test_threads_and_loops_have_calls_open_at_once(self):
        code = (
            "import asyncio\n"
            "def work(i):\n"
            "    return asyncio.run(mcp__s__echo(x=i))['x']\n"
            "async def mine(i):\n"
            "    return (await mcp__s__echo(x=i))['x']\n"
            "print(sorted(await asyncio.gather(*[asyncio.to_thread(work, i) for i in range(4)], mine(4), mine(5))))\n"
        )

        def answer(message, messages):
            calls = [seen for seen in messages if seen["t"] == "call"]
            return [(call["id"], echo(call)) for call in calls] if len(calls) == 6 else None

        outcome = follow(code, answer)
        self.assertEqual((outcome.error, outcome.out), (None, "[0, 1, 2, 3, 4, 5]\n"))

    def test_cancelled_call_is_reported_once(self):
        code = (
            "import asyncio\n"
            "try:\n"
            "    async with asyncio.timeout(0.01):\n"
            "        await mcp__s__echo(x=1)\n"
            "except TimeoutError:\n"
            "    print('late')\n"
            "print(await mcp__s__echo(x=2))\n"
        )

        def answer(message, messages):
            return echo(message) if message["t"] == "call" and message["args"]["x"] == 2 else None

        outcome = follow(code, answer)
        self.assertEqual((outcome.error, outcome.out), (None, "late\n{'x': 2}\n"))
        self.assertEqual([message["t"] for message in outcome.messages], ["call", "cancel", "call", "done"])
        self.assertEqual(outcome.messages[1], {"t": "cancel", "id": outcome.messages[0]["id"]})

    def test_failing_task_group_cancels_its_other_calls(self):
        code = (
            "import asyncio\n"
            "async def bad():\n"
            "    await mcp__s__echo(x=0)\n"
            "    raise ValueError('bad')\n"
            "async with asyncio.TaskGroup() as group:\n"
            "    for i in range(1, 4):\n"
            "        group.create_task(mcp__s__echo(x=i))\n"
            "    group.create_task(bad())\n"
        )

        def answer(message, messages):
            return echo(message) if message["t"] == "call" and message["args"]["x"] == 0 else None

        outcome = follow(code, answer)
        self.assertIn("ValueError: bad", outcome.error)
        self.assertEqual(sum(message["t"] == "cancel" for message in outcome.messages), 3)

    def test_reply_to_a_cancelled_call_is_ignored(self):
        code = (
            "import asyncio\n"
            "task = asyncio.create_task(mcp__s__echo(x=1))\n"
            "await asyncio.sleep(0)\n"
            "task.cancel()\n"
            "print(await mcp__s__echo(x=2))\n"
        )

        def answer(message, messages):
            if message["t"] == "cancel":
                return [(message["id"], value('"too late"'))]
            return echo(message) if message["args"]["x"] == 2 else None

        self.assertEqual(follow(code, answer).out, "{'x': 2}\n")

    def test_big_arguments_and_results_cross_each_other(self):
        # Both sides write more than the socket holds before they read.
        size = 2_000_000
        code = f"import asyncio\nr = await asyncio.gather(*[mcp__s__echo(x='a' * {size}) for _ in range(4)])\nprint([len(v['x']) for v in r])"
        outcome = run(code)
        self.assertEqual((outcome.error, outcome.out), (None, f"{[size] * 4}\n"))

    def test_twenty_megabytes_arrive_whole_and_fast(self):
        text = json.dumps([{"id": number, "name": "é" * 20} for number in range(150_000)], ensure_ascii=False)
        self.assertGreater(len(text.encode()), 10_000_000)
        outcome = run("r = await mcp__s__echo()\nprint(len(r), r[-1]['id'])", lambda call: value(text))
        self.assertEqual((outcome.error, outcome.out), (None, "150000 149999\n"))

    def test_cost_of_a_large_text_grows_with_its_size_only(self):
        code = "import time\nr = await mcp__s__echo()\nprint(len(r))"
        times = []
        for size in (2_000_000, 20_000_000):
            body = value("a" * size)
            started = time.perf_counter()
            self.assertEqual(run(code, lambda call: body).out, f"{size}\n")
            times.append(time.perf_counter() - started)
        self.assertLess(times[1], 15 * times[0] + 5)

    def test_daemon_that_leaves_fails_the_open_call(self):
        child = Child()
        child.wait_ready()
        child.start("try:\n    await mcp__s__echo(x=1)\nexcept ToolError as error:\n    print(error.code, error)")
        self.assertEqual(child.receive()[0]["t"], "call")
        child.channel.shutdown(2)
        outcome = child.follow(lambda message, messages: None)
        self.assertEqual(outcome.out, "channel_closed tool channel closed\n")

    def test_daemon_that_leaves_before_the_program_ends_the_child(self):
        child = Child()
        child.wait_ready()
        child.channel.shutdown(2)
        outcome = child.follow(lambda message, messages: None)
        self.assertEqual((outcome.done, outcome.status), (None, 0))


class Shape(unittest.TestCase):
    def test_frames_are_the_contract(self):
        outcome = run("await mcp__s__echo(x=[1, None])\nawait list_callable_tools(query='q')\nemit({'a': 1})")
        self.assertEqual(
            outcome.messages,
            [
                {"t": "call", "id": 1, "tool": "mcp__s__echo", "args": {"x": [1, None]}},
                {"t": "call", "id": 2, "tool": "list_callable_tools", "args": {"query": "q"}},
                {"t": "done", "ok": True, "error": None, "emitted": True, "warnings": [], "result": {"a": 1}},
            ],
        )

    def test_helper_values_come_as_they_are(self):
        outcome = run("print(await server_status())", lambda call: Reply(ok=True, value={"a-b": {"connected": True}}))
        self.assertEqual(outcome.out, "{'a-b': {'connected': True}}\n")


if __name__ == "__main__":
    unittest.main()
