#!/usr/bin/env python3
"""Measures what enters a conversation: the same five tasks by direct tool calls, and by one program through ptc.

    context.py --bin-dir target/debug

For a task done directly, a client sends the model the definitions of the servers' tools, the model writes each call, and
each result comes back. Through ptc it sends the three tools and the instructions, the model finds its tools, writes one
program, and its text comes back. Both are run for real; bytes are those of compact JSON (definitions, calls) and of the
text blocks or the structured content (results). Tokens are estimated as bytes / 4.

The servers are the public time, filesystem, memory and everything servers, the demo server of ptcd, and a small one with
the official SDK that has endpoints to check, which no public server has.

Two of the tasks are also done by Claude Code itself with a scripted model: there the figure is the growth of its requests
to the model over a session that uses no tool.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from world import Client, Daemon

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
INSTALLED = FIXTURES / ".installed"
PYTHON = str(INSTALLED / "python/bin/python")
# What ptc may cost a session with 30 servers of 15 tools before it is used.
FIXED_TOKENS = 1500
TICKERS = ["AMZN", "MSFT", "GOOG"]


def compact(value):
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def shown(result):
    """Bytes of a result as a client shows it: structured content in place of text where there is some."""
    if result.get("structuredContent") is not None:
        return compact(result["structuredContent"])
    return sum(len(block.get("text", "").encode()) for block in result["content"])


def definitions(tools):
    return sum(compact({key: tool.get(key) for key in ("name", "description", "inputSchema")}) for tool in tools)


def tasks(dir):
    rows = dir / "rows.csv"
    rows.write_text("id,region,amount\n" + "".join(f"{n},{'north' if n % 4 else 'south'},{n % 997}\n" for n in range(10_000)))
    path = str(rows)
    financials = [("demo", "query_financials", {"ticker": t, "statement": "income", "period": "quarterly", "limit": 4})
                  for t in TICKERS]
    return {
        "a  one call": ([("time", "get_current_time", {"timezone": "UTC"})],
                        "print(await mcp__time__get_current_time(timezone='UTC'))"),
        "b  three tickers": (financials, f"""for ticker in {TICKERS}:
    rows = await mcp__demo__query_financials(ticker=ticker, statement='income', period='quarterly', limit=4)
    print(ticker, ' → '.join(str(row['revenue']) for row in reversed(rows)))"""),
        "c  fifty status checks": ([("checks", "check_status", {"id": n}) for n in range(50)], """import asyncio
checks = await asyncio.gather(*(mcp__checks__check_status(id=n) for n in range(50)))
print('unhealthy:', [check['id'] for check in checks if not check['healthy']])"""),
        "d  filter 10,000 rows": ([("filesystem", "read_text_file", {"path": path})], f"""import csv, io
text = (await mcp__filesystem__read_text_file(path={path!r}))['content']
rows = [row for row in csv.DictReader(io.StringIO(text)) if row['region'] == 'south' and int(row['amount']) > 990]
print(len(rows), sum(int(row['amount']) for row in rows))"""),
        "e  two servers joined": (
            [("filesystem", "list_directory", {"path": str(dir)}), *financials],
            f"""import re
listing = str(await mcp__filesystem__list_directory(path={str(dir)!r}))
total = 0
for ticker in {TICKERS}:
    rows = await mcp__demo__query_financials(ticker=ticker, statement='income', period='quarterly', limit=4)
    total += rows[0]['revenue']
print(len(re.findall('FILE', listing)), total)"""),
    }


def servers(dir, bin_dir):
    return {
        "demo": [str(pathlib.Path(bin_dir).resolve() / "ptcd"), "__demo-server"],
        "checks": [PYTHON, str(FIXTURES / "finance_server.py")],
        "time": [str(INSTALLED / "python/bin/mcp-server-time")],
        "filesystem": [str(INSTALLED / "npm/node_modules/.bin/mcp-server-filesystem"), str(dir)],
        "memory": [str(INSTALLED / "npm/node_modules/.bin/mcp-server-memory")],
        "everything": [str(INSTALLED / "npm/node_modules/.bin/mcp-server-everything"), "stdio"],
    }


def configured(commands):
    return {"servers": [{"name": name, "command": argv[0], "args": argv[1:]} for name, argv in commands.items()],
            "execution": {"sandbox": "none"}}


class Direct:
    """A client with all servers connected, as a session without ptc has them."""

    def __init__(self, commands):
        self.clients = {name: Client(argv, dict(os.environ)) for name, argv in commands.items()}
        self.fixed = 0
        for name, client in self.clients.items():
            self.fixed += len(client.initialize().get("instructions", "").encode())
            self.fixed += definitions(client.request("tools/list", {})["tools"])

    def run(self, calls):
        """Bytes of the calls, and of their results."""
        asked = answered = 0
        for server, tool, arguments in calls:
            result = self.clients[server].call(tool, arguments)
            if result.get("isError"):
                sys.exit(f"{tool} failed: {result}")
            asked += compact({"name": f"mcp__{server}__{tool}", "input": arguments})
            answered += shown(result)
        return asked, answered

    def close(self):
        for client in self.clients.values():
            client.close()


class Through:
    """The same through a shim: the fixed cost, then a discovery, one look at each tool, and the program."""

    def __init__(self, daemon):
        self.client = daemon.shim()
        instructions = self.client.initialize().get("instructions", "")
        self.fixed = len(instructions.encode()) + definitions(self.client.request("tools/list", {})["tools"])

    def tool(self, name, arguments):
        result = self.client.call(name, arguments)
        text = "".join(block.get("text", "") for block in result["content"])
        if result.get("isError"):
            sys.exit(f"{name} failed: {text}")
        return compact({"name": f"mcp__ptc__{name}", "input": arguments}), len(text.encode())

    def run(self, calls, code):
        """Bytes of the discovery, of the program, and of its output."""
        used = sorted({f"mcp__{server}__{tool}" for server, tool, _ in calls})
        looks = [self.tool("list_callable_tools", {"query": name.split("__")[2], "detail": "signatures"}) for name in used]
        return sum(map(sum, looks)), *self.tool("execute_program", {"code": code})


def claude_code(daemon, mcp_servers, turns):
    """Bytes of the tools, the system and the messages of the last request that Claude Code makes of its model."""
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        log = home / "model.jsonl"
        model = subprocess.Popen([sys.executable, str(FIXTURES / "scripted_model.py"), str(log), json.dumps(turns)],
                                 stdout=subprocess.PIPE, text=True)
        try:
            (home / "mcp.json").write_text(json.dumps({"mcpServers": mcp_servers}))
            env = {"HOME": str(home), "PATH": os.environ["PATH"], "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1",
                   "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ANTHROPIC_API_KEY": "none",
                   "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.stdout.readline().strip()}"}
            tools = sorted({turn["tool"] for turn in turns if "tool" in turn})
            argv = [str(INSTALLED / "npm/node_modules/.bin/claude"), "-p", "go", "--strict-mcp-config", "--mcp-config",
                    str(home / "mcp.json"), "--output-format", "json"] + (["--allowedTools", ",".join(tools)] if tools else [])
            subprocess.run(argv, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=120)
        finally:
            model.kill()
        last = [json.loads(line) for line in log.read_text().splitlines()][-1]
        return compact([last.get("tools"), last.get("system"), last["messages"]])


def with_claude_code(daemon, commands, wanted):
    shim = {"ptc": {"command": daemon.binary("ptc-shim"), "args": ["--no-autostart", "--socket", daemon.env["PTC_SOCKET"]]}}
    direct_servers = {name: {"command": commands[name][0], "args": commands[name][1:]} for name in ("demo", "checks")}
    idle = claude_code(daemon, {}, [{"say": "done"}])
    print(f"\nClaude Code with a scripted model; growth of its last request over a session without MCP ({idle:,} bytes)")
    print("direct: demo and checks as its servers; through ptc: the shim alone")
    print(f"{'task':<26} {'direct bytes':>14} {'tokens':>9} {'through ptc':>14} {'tokens':>9}")
    for name, (calls, code) in wanted.items():
        direct = [{"tool": f"mcp__{s}__{t}", "input": a} for s, t, a in calls]
        program = [{"tool": "mcp__ptc__execute_program", "input": {"code": code}}]
        one = claude_code(daemon, direct_servers, [*direct, {"say": "done"}]) - idle
        other = claude_code(daemon, shim, [*program, {"say": "done"}]) - idle
        print(f"{name:<26} {one:>14,} {one // 4:>9,} {other:>14,} {other // 4:>9,}")


def many_servers(bin_dir):
    """The fixed cost with 30 servers of 15 tools."""
    tools = [{"name": f"do_thing_{n}", "description": f"Does the thing number {n} to a record and returns it.",
              "inputSchema": {"type": "object", "properties": {"record": {"type": "string"}}}} for n in range(15)]
    script = json.dumps({"tools": tools})
    daemon = Daemon(bin_dir, configured({f"service-{n}": [sys.executable, str(FIXTURES / "fake_server.py"), script]
                                         for n in range(30)}))
    try:
        daemon.wait_ready()
        through = Through(daemon)
        through.client.close()
        return through.fixed, 30 * definitions(tools)
    finally:
        daemon.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True, help="folder of ptcd, ptc-shim and ptcctl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ptc-context-", dir="/tmp") as folder:
        folder = pathlib.Path(folder).resolve()
        commands = servers(folder, options.bin_dir)
        daemon = Daemon(options.bin_dir, configured(commands))
        direct = Direct(commands)
        try:
            daemon.wait_ready()
            through = Through(daemon)
            all_tasks = tasks(folder)
            print("bytes that enter the conversation; tokens estimated as bytes / 4")
            print(f"fixed cost with {len(commands)} servers: direct {direct.fixed:,} bytes ({direct.fixed // 4:,} tokens), "
                  f"through ptc {through.fixed:,} bytes ({through.fixed // 4:,} tokens)")
            print(f"direct = definitions ({direct.fixed:,}) + calls + results; "
                  f"through ptc = tools and instructions ({through.fixed:,}) + discovery + program + output")
            print(f"{'task':<26}{'direct':>10}{'tokens':>9}{'calls':>9}{'results':>9}   "
                  f"{'ptc':>8}{'tokens':>8}{'discovery':>11}{'program':>9}{'output':>8}")
            for name, (calls, code) in all_tasks.items():
                asked, answered = direct.run(calls)
                discovery, program, output = through.run(calls, code)
                one = direct.fixed + asked + answered
                other = through.fixed + discovery + program + output
                print(f"{name:<26}{one:>10,}{one // 4:>9,}{asked:>9,}{answered:>9,}   "
                      f"{other:>8,}{other // 4:>8,}{discovery:>11,}{program:>9,}{output:>8,}")
            through.client.close()
            with_claude_code(daemon, commands, {name: task for name, task in all_tasks.items() if name[0] in "bc"})
        finally:
            direct.close()
            daemon.close()
    fixed, plain = many_servers(options.bin_dir)
    print(f"\nfixed cost with 30 servers × 15 tools: through ptc {fixed:,} bytes ({fixed // 4:,} tokens), direct {plain:,} bytes")
    if fixed // 4 >= FIXED_TOKENS:
        sys.exit(f"the fixed cost is over {FIXED_TOKENS} tokens")


main()
