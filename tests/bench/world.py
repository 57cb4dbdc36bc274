"""A client and a daemon for the measurements, standard library only."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time


class Client:
    """An MCP client on the pipes of a stdio server. Requests may be sent from several threads."""

    def __init__(self, argv, env):
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.last, self.waiting, self.lock = 0, {}, threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if waiting := self.waiting.pop(message.get("id"), None):
                waiting.append(message)
                waiting[0].set()

    def request(self, method, params):
        waiting = [threading.Event()]
        with self.lock:
            self.last += 1
            self.waiting[self.last] = waiting
            text = json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        if not waiting[0].wait(120):
            sys.exit(f"no answer to {method}")
        if "error" in waiting[1]:
            sys.exit(f"{method} failed: {waiting[1]['error']}")
        return waiting[1]["result"]

    def initialize(self):
        ready = self.request("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                            "clientInfo": {"name": "bench", "version": "1"}})
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.process.stdin.flush()
        return ready

    def call(self, tool, arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def program(self, code):
        result = self.call("execute_program", {"code": code})
        text = result["content"][0]["text"]
        if result.get("isError"):
            sys.exit(f"a program failed: {text[:500]}")
        return text

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Daemon:
    """A private ptcd with everything of its own in a temporary directory."""

    def __init__(self, bin_dir, settings):
        self.bin_dir = pathlib.Path(bin_dir).resolve()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="ptc-bench-", dir="/tmp"))
        self.env = {"HOME": str(self.dir), "PATH": os.environ["PATH"], "PTC_SOCKET": str(self.dir / "d.sock"),
                    "PTC_CONFIG": str(self.dir / "config.yaml"), "PTC_STATE_DIR": str(self.dir / "state")}
        (self.dir / "config.yaml").write_text(json.dumps(settings))
        self.process = subprocess.Popen([self.binary("ptcd"), "run"], env=self.env, stdout=subprocess.DEVNULL,
                                        stderr=(self.dir / "ptcd.stderr").open("w"))

    def binary(self, name):
        return str(self.bin_dir / name)

    def shim(self):
        """A shim before its handshake."""
        return Client([self.binary("ptc-shim"), "--no-autostart"], self.env)

    def client(self):
        client = self.shim()
        client.initialize()
        return client

    def status(self):
        ran = subprocess.run([self.binary("ptcctl"), "--no-autostart", "status", "--json"], env=self.env,
                             capture_output=True, text=True)
        return json.loads(ran.stdout) if ran.returncode == 0 else None

    def wait(self, what, wanted):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if (status := self.status()) and wanted(status):
                return status
            time.sleep(0.02)
        sys.exit(f"waited in vain until {what}; ptcd said: {(self.dir / 'ptcd.stderr').read_text()[-2000:]}")

    def wait_ready(self):
        self.wait("all servers are ready", lambda s: all(server["state"] == "ready" for server in s["servers"]))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
