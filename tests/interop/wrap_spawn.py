"""Makes the Python SDK's stdio client spawn every server through a wrapper, and notes what pytest found.

INTEROP_WRAP: the wrapper as a JSON array that the server's command is appended to; [] changes nothing.
INTEROP_OUTCOMES: where the pytest plugin writes {test: outcome}.
"""

import json
import os

import mcp.client.stdio as stdio

WRAP = json.loads(os.environ["INTEROP_WRAP"])
spawn = stdio._create_platform_compatible_process
outcomes = {}


async def spawn_wrapped(command, args, *rest, **named):
    *wrapped, = *WRAP, command, *args
    return await spawn(wrapped[0], wrapped[1:], *rest, **named)


stdio._create_platform_compatible_process = spawn_wrapped


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish():
    with open(os.environ["INTEROP_OUTCOMES"], "w", encoding="utf-8") as file:
        json.dump(outcomes, file)
