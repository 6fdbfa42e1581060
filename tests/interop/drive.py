"""Runs one scripted session with the Python SDK's client and writes down what it saw.

usage: drive.py JOB.json OUT.json

JOB: command, env, cwd, mode ("legacy", "auto" or a protocol version), steps; or url in place of command, env and cwd.
OUT: results (one value per step), sent and received (every message that crossed, as text), exit (of the spawned command),
stderr.
The steps are the ones of `scenarios/*.json`; `drive.mjs` understands the same.
"""

import json
import os
import re
import sys

import anyio
import httpx2
import mcp.client.stdio as stdio
import mcp_types as types
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

ANSWER_WITHIN = 30
# The SDK kills what is not gone after two seconds, which a busy machine needs; the SDK's own tests keep its limit.
stdio.PROCESS_TERMINATION_TIMEOUT = 30


class Wire:
    """Keeps a copy of every message that crosses."""

    def count(self, method):
        return sum(json.loads(message).get("method") == method for message in self.received)


class StdioWire(Wire):
    """Lines of the child's stdin and stdout."""

    def __init__(self, job, errlog):
        self.input, self.output, self.process = b"", b"", None
        self.install()
        params = StdioServerParameters(
            command=job["command"][0], args=job["command"][1:], env=job["env"], cwd=job["cwd"]
        )
        self.transport = stdio.stdio_client(params, errlog=errlog)

    @property
    def sent(self):
        return self.input.decode().split("\n")[:-1]

    @property
    def received(self):
        return self.output.decode().split("\n")[:-1]

    @property
    def exit(self):
        return self.process.returncode

    def install(self):
        spawn = stdio._create_platform_compatible_process

        async def tapped(*args, **kwargs):
            self.process = process = await spawn(*args, **kwargs)
            send, receive = process._stdin.send, process._stdout.receive

            async def tapped_send(data):
                self.input += data
                await send(data)

            async def tapped_receive(*a):
                data = await receive(*a)
                self.output += data
                return data

            process._stdin.send, process._stdout.receive = tapped_send, tapped_receive
            return process

        stdio._create_platform_compatible_process = tapped


class HttpWire(Wire):
    """Bodies of requests and answers; of event streams, the data of each event."""

    exit = None

    def __init__(self, job):
        self.sent, self.bodies = [], []
        # Without limits of time: they are those of the steps.
        self.client = httpx2.AsyncClient(transport=TappedTransport(self), timeout=None)
        self.transport = streamable_http_client(job["url"], http_client=self.client)

    @property
    def received(self):
        return [message for is_stream, body in self.bodies for message in messages(is_stream, bytes(body).decode(errors="replace"))]


def messages(is_stream, text):
    if not is_stream:
        return [text] if text.startswith("{") else []
    events = (re.findall(r"^data: ?(.*)$", event, re.M) for event in re.split(r"\n\n", text.replace("\r\n", "\n"))[:-1])
    return [data for data in map("\n".join, events) if data]


class TappedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, wire):
        super().__init__()
        self.wire = wire

    async def handle_async_request(self, request):
        if request.content:
            self.wire.sent.append(request.content.decode())
        response = await super().handle_async_request(request)
        kind = response.headers.get("content-type", "")
        body = bytearray()
        self.wire.bodies.append((kind.startswith("text/event-stream"), body))
        response.stream = TappedStream(response.stream, body)
        return response


class TappedStream(httpx2.AsyncByteStream):
    def __init__(self, stream, body):
        self.stream, self.body = stream, body

    async def __aiter__(self):
        async for piece in self.stream:
            self.body.extend(piece)
            yield piece

    async def aclose(self):
        await self.stream.aclose()


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def sampling(_context, params):
    text = f"sampled {len(params.messages)} message, at most {params.max_tokens} tokens: grüße"
    return types.CreateMessageResult(role="assistant", model="scripted", content=types.TextContent(type="text", text=text))


async def elicitation(_context, params):
    schema = getattr(params, "requested_schema", None) or {}
    content = {}
    for name, field in schema.get("properties", {}).items():
        if name in schema.get("required", []):
            content[name] = {"boolean": True, "integer": 7, "number": 7.5}.get(field.get("type"), "naïve ☃")
    return types.ElicitResult(action="accept", content=content)


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///tmp/über", name="über")])


class Session:
    def __init__(self, client, wire):
        self.client, self.wire = client, wire

    async def run(self, step):
        with anyio.fail_after(ANSWER_WITHIN):
            try:
                return await getattr(self, "do_" + step["op"])(step)
            except MCPError as error:
                return {"error": {"code": error.error.code, "message": error.error.message}}

    async def do_server(self, _step):
        info = self.client.server_info
        return {
            "version": self.client.protocol_version,
            "info": info and plain(info),
            "capabilities": plain(self.client.server_capabilities),
            "instructions": self.client.instructions,
        }

    async def pages(self, fetch, member):
        found, cursor = [], None
        while True:
            page = plain(await fetch(cursor=cursor))
            found += page[member]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def do_tools(self, _step):
        return await self.pages(self.client.list_tools, "tools")

    async def do_resources(self, _step):
        return await self.pages(self.client.list_resources, "resources")

    async def do_prompts(self, _step):
        return await self.pages(self.client.list_prompts, "prompts")

    async def do_read(self, step):
        return plain(await self.client.read_resource(step["uri"]))

    async def do_prompt(self, step):
        return plain(await self.client.get_prompt(step["name"], step.get("args")))

    async def do_call(self, step):
        async def on_progress(*_values):
            pass

        result = await self.client.call_tool(
            step["name"],
            step.get("args"),
            progress_callback=on_progress if step.get("progress") else None,
            meta=step.get("meta"),
        )
        return plain(result)

    async def do_parallel(self, step):
        results = [None] * len(step["calls"])

        async def one(index, call):
            results[index] = await self.run({"op": "call", **call})

        async with anyio.create_task_group() as group:
            for index, call in enumerate(step["calls"]):
                group.start_soon(one, index, call)
        return results

    async def do_cancel(self, step):
        """Calls a tool and gives up at its first progress notification."""
        with anyio.CancelScope() as scope:

            async def give_up(*_values):
                scope.cancel()

            await self.client.call_tool(step["name"], step.get("args"), progress_callback=give_up)
        return {"cancelled": scope.cancelled_caught}

    async def do_listen(self, step):
        """Holds a `subscriptions/listen` stream open while a tool changes the list of tools."""
        async with self.client.listen(tools_list_changed=True) as events:
            await self.client.call_tool(step["name"], step.get("args"))
            async for event in events:
                return type(event).__name__

    async def do_notified(self, step):
        while self.wire.count(step["method"]) < step.get("count", 1):
            await anyio.sleep(0.01)
        return step["method"]

    async def do_offered(self, step):
        """Lists the tools until one of this name is there."""
        while True:
            names = [tool["name"] for tool in await self.do_tools(step)]
            if step["name"] in names:
                return names
            await anyio.sleep(0.05)

    async def do_make(self, step):
        """Makes a file that somebody else waits for."""
        open(step["path"], "x").close()
        return True

    async def do_exists(self, step):
        """Holds the session open until somebody else has made a file."""
        while not os.path.exists(step["path"]):
            await anyio.sleep(0.01)
        return True


async def main(job, out):
    with open(out + ".stderr", "w+", encoding="utf-8") as errlog:
        wire = HttpWire(job) if "url" in job else StdioWire(job, errlog)
        client = Client(
            wire.transport,
            mode=job["mode"],
            sampling_callback=sampling,
            elicitation_callback=elicitation,
            list_roots_callback=roots,
            client_info=types.Implementation(name="interop-python", version="1"),
            cache=None,
        )
        async with client:
            session = Session(client, wire)
            results = [await session.run(step) for step in job["steps"]]
        errlog.seek(0)
        stderr = errlog.read()
    report = {"results": results, "sent": wire.sent, "received": wire.received, "exit": wire.exit, "stderr": stderr}
    with open(out, "w", encoding="utf-8") as file:
        json.dump(report, file)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        anyio.run(main, json.load(file), sys.argv[2])
