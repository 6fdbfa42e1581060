"""Runs one scripted session with the Python SDK's client and writes down what it saw.

usage: drive.py JOB.json OUT.json

JOB: command, env, cwd, mode ("legacy", "auto" or a protocol version), steps.
OUT: results (one value per step), sent and received (every line that crossed), exit (of the spawned command), stderr.
The steps are the ones of `scenarios/*.json`; `drive.mjs` understands the same.
"""

import json
import os
import sys

import anyio
import mcp.client.stdio as stdio
import mcp_types as types
from mcp import MCPError, StdioServerParameters
from mcp.client import Client

ANSWER_WITHIN = 30
# The SDK kills what is not gone after two seconds, which a busy machine needs; the SDK's own tests keep its limit.
stdio.PROCESS_TERMINATION_TIMEOUT = 30


class Wire:
    """Keeps a copy of every line of the child's stdin and stdout."""

    def __init__(self):
        self.sent, self.received, self.process = b"", b"", None

    def install(self):
        spawn = stdio._create_platform_compatible_process

        async def tapped(*args, **kwargs):
            self.process = process = await spawn(*args, **kwargs)
            send, receive = process._stdin.send, process._stdout.receive

            async def tapped_send(data):
                self.sent += data
                await send(data)

            async def tapped_receive(*a):
                data = await receive(*a)
                self.received += data
                return data

            process._stdin.send, process._stdout.receive = tapped_send, tapped_receive
            return process

        stdio._create_platform_compatible_process = tapped

    def count(self, method):
        return sum(json.loads(line).get("method") == method for line in self.received.split(b"\n")[:-1])


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

    async def do_exists(self, step):
        """Holds the session open until somebody else has made a file."""
        while not os.path.exists(step["path"]):
            await anyio.sleep(0.01)
        return True


async def main(job, out):
    wire = Wire()
    wire.install()
    params = StdioServerParameters(
        command=job["command"][0], args=job["command"][1:], env=job["env"], cwd=job["cwd"]
    )
    with open(out + ".stderr", "w+", encoding="utf-8") as errlog:
        client = Client(
            stdio.stdio_client(params, errlog=errlog),
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
    report = {
        "results": results,
        "sent": wire.sent.decode().split("\n")[:-1],
        "received": wire.received.decode().split("\n")[:-1],
        "exit": wire.process.returncode,
        "stderr": stderr,
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(report, file)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        anyio.run(main, json.load(file), sys.argv[2])
