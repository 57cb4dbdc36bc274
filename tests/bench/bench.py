#!/usr/bin/env python3
"""Measures the release binaries on this machine: what a model and its client wait for.

    bench.py --bin-dir target/release [--sandbox none|auto] [--samples 50] [--json FILE]

Starts a private ptcd with a scripted stdio server, speaks MCP with ptc-shim as a client does, and prints the median with
the 10th and 90th percentile of each figure. Standard library only, so that little but ptc is measured; the client's own
cost (JSON and pipes in Python) is part of every figure.
"""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import sys
import threading
import time

from world import Daemon

FAKE_SERVER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "fake_server.py"


def percentile(sorted_samples, share):
    return sorted_samples[min(len(sorted_samples) - 1, round(share * (len(sorted_samples) - 1)))]


class Bench:
    def __init__(self, options):
        self.options, self.rows = options, []
        self.daemon = Daemon(options.bin_dir, {
            "servers": [{"name": "mock", "transport": "stdio", "command": sys.executable, "args": [str(FAKE_SERVER)],
                         "max_concurrent_calls": 100}],
            "execution": {"sandbox": options.sandbox, "max_concurrent_calls": 100, "warm_children": options.warm},
        })

    def warm(self):
        """Until the pool is full again; else a figure would be that of a cold start."""
        self.daemon.wait("the pool is warm", lambda s: s["pool"]["warm"] >= self.options.warm and not s["pool"]["running"])

    def measure(self, name, once, samples, unit="ms", before=lambda: None):
        figures = []
        for _ in range(samples):
            before()
            start = time.perf_counter()
            value = once()
            figures.append((time.perf_counter() - start) * 1000 if value is None else value)
        figures.sort()
        row = {"name": name, "unit": unit, "median": statistics.median(figures), "p10": percentile(figures, 0.1),
               "p90": percentile(figures, 0.9), "samples": samples}
        self.rows.append(row)
        print(f"{name:<58} {row['median']:>9.2f}  {row['p10']:>9.2f} {row['p90']:>9.2f}  {unit:<10} n={samples}", flush=True)

    def run(self):
        samples = self.options.samples
        self.daemon.wait_ready()
        print(f"{'figure':<58} {'median':>9}  {'p10':>9} {'p90':>9}")

        started = []

        def spawn():
            started.append(self.daemon.client())

        self.measure("shim spawned → initialize answered", spawn, samples)
        for client in started:
            client.close()

        client = self.daemon.client()
        self.measure("execute_program print(1), warm child", lambda: client.program("print(1)") and None, samples,
                     before=self.warm)
        self.measure("execute_program print(1), back to back", lambda: client.program("print(1)") and None, samples)
        loop = "for n in range({0}):\n    r = await mcp__mock__echo(n=n)\nassert r == {{'n': {0} - 1}}"
        for count in (1, 10, 100):
            self.measure(f"{count} calls one after the other, warm child", lambda: client.program(loop.format(count)) and None,
                         max(10, samples // 2), before=self.warm)
        gather = ("import asyncio\nr = await asyncio.gather(*(mcp__mock__echo(n=n) for n in range(100)))\n"
                  "assert [x['n'] for x in r] == list(range(100))")
        self.measure("100 calls in one gather, warm child", lambda: client.program(gather) and None,
                     max(10, samples // 2), before=self.warm)
        sleep = "import asyncio\nawait asyncio.gather(*(mcp__mock__sleep(seconds=0.1) for _ in range(100)))"
        self.measure("100 calls that take 100 ms each, in one gather", lambda: client.program(sleep) and None, 5,
                     before=self.warm)
        peak = client.program("print((await mcp__mock__peak())['peak'])").split("\n")[1]
        print(f"{'  … of which ran at once in the server, at most':<58} {peak:>9}")
        for megabytes in (1, 10):
            code = f"r = await mcp__mock__big(size={megabytes}_000_000)\nassert len(r) == {megabytes}_000_000"
            self.measure(f"a result of {megabytes} MB text", lambda: client.program(code) and None, max(5, samples // 5),
                         before=self.warm)

        def eight():
            start = time.perf_counter()
            workers = [threading.Thread(target=lambda: [client.program("print(1)") for _ in range(5)]) for _ in range(8)]
            [worker.start() for worker in workers]
            [worker.join() for worker in workers]
            return 40 / (time.perf_counter() - start)

        self.measure("8 programs at a time, print(1)", eight, 5, unit="programs/s")
        status = self.daemon.status()
        print(f"{'memory of ptcd':<58} {status['daemon']['rss_bytes'] / 2**20:>9.1f}  MB")
        rss = shim_memory(client.process.pid)
        if rss:
            print(f"{'memory of a shim':<58} {rss / 2**10:>9.1f}  MB")
        client.close()


def shim_memory(pid):
    """Resident kilobytes, where the system tells."""
    with contextlib.suppress(OSError):
        for line in open(f"/proc/{pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return None


def processor():
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return line.split(":")[1].strip()
    return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True, help="folder of ptcd, ptc-shim and ptcctl")
    parser.add_argument("--sandbox", default="none", help="execution.sandbox of the private daemon")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--warm", type=int, default=4, help="execution.warm_children of the private daemon")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    machine = {"system": platform.platform(), "processor": processor(), "cores": os.cpu_count(),
               "python": platform.python_version(), "load_before": round(load, 2), "sandbox": options.sandbox}
    print("; ".join(f"{key} {value}" for key, value in machine.items()))
    bench = Bench(options)
    try:
        bench.run()
    finally:
        bench.daemon.close()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"machine": machine, "figures": bench.rows}, indent=1))


main()
