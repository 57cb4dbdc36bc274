# A scripted MCP server on stdio: each test puts its own code in the place of the marked line.
import json, os, signal, subprocess, sys, threading, time

TOOLS = [{"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}]


def raw(data):
    sys.stdout.buffer.write(data if isinstance(data, bytes) else data.encode())
    sys.stdout.buffer.flush()


def send(message):
    raw(json.dumps(message) + "\n")


def reply(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(request, value):
    reply(request, {"content": [{"type": "text", "text": value}]})


def initialize(request):
    info = {"name": "fake", "version": "1"}
    reply(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})


def listing(request):
    reply(request, {"tools": TOOLS})


def call(request):
    text(request, request["line"])


def other(message):
    pass


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return dict(json.loads(line), line=line)


# SCRIPT

while True:
    message = receive()
    handlers = {"initialize": initialize, "tools/list": listing, "tools/call": call}
    handlers.get(message.get("method"), other)(message)
