"""A fastmcp server with the tools that `scenarios/own.json` calls; `own.mjs` has the same.

usage: own.py [PORT]    over stdio, or over HTTP at /mcp
"""

import asyncio
import base64
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ToolListChangedNotification,
)

server = FastMCP("own-fastmcp", version="1.0")
SCHEMA = {"type": "object", "properties": {"value": {"type": "boolean"}}, "required": ["value"]}


@server.tool
def echo(text: str) -> str:
    return f"écho: {text}"


@server.tool
def big(count: int) -> str:
    return "ß☃𝄞\n\"\\" * count


@server.tool
def fail(why: str) -> str:
    raise ToolError(f"refusé: {why}")


@server.tool
def image() -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(bytes(range(256)) * 64).decode(), mime_type="image/png")


@server.tool
def noise(lines: int) -> str:
    for number in range(lines):
        print(f"interop: {number} {'x' * 200}", file=sys.stderr)
    return "said"


@server.tool
async def steps(ctx: Context, count: int) -> int:
    for number in range(count):
        await ctx.report_progress(number + 0.5, count, f"étape {number}")
    return count


@server.tool
async def slow(ctx: Context) -> str:
    await ctx.report_progress(0, 1)
    await asyncio.sleep(0.5)
    return "late"


@server.tool
async def ask(ctx: Context) -> str | InputRequiredResult:
    if ctx.request_context.protocol_version < "2026":
        answer = await ctx.elicit("Vraiment ?", bool)
        return f"{answer.action} {getattr(answer, 'data', None)}"
    responses = ctx.input_responses
    if not responses:
        params = ElicitRequestFormParams(message="Vraiment ?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"sure": ElicitRequest(params=params)}, request_state="asked")
    answer = responses["sure"]
    assert isinstance(answer, ElicitResult)
    return f"{answer.action} {answer.content}"


@server.tool
async def grow(ctx: Context) -> str:
    @server.tool
    def grown() -> str:
        return "neu"

    await ctx.send_notification(ToolListChangedNotification())
    return "grew"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="http", port=int(sys.argv[1]), show_banner=False)
    else:
        server.run(show_banner=False)
