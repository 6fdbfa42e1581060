"""Runs the stories of the Python SDK's examples over HTTP and writes {story: passed or failed}.

usage: stories_http.py EXAMPLES_DIR OUT.json WAY PROXY_JSON [STORY_FLAG...]

WAY: `listener`: the client connects to the proxy, which listens in front of the story's server; `bridge`: the client starts
the proxy and speaks with it over stdio. PROXY_JSON: the proxy's command up to its URL, as a JSON array.
"""

import json
import os
import runpy
import shutil
import socket
import sys
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

# It has no HTTP entry point.
WITHOUT_HTTP = {"serve_one"}
# Where the OAuth stories say that their server is.
FIXED_PORT = "8000"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def with_port(examples, port):
    """A copy of the examples that has this port in place of the fixed one."""
    copy = Path(tempfile.mkdtemp())
    shutil.copytree(examples, copy, dirs_exist_ok=True)
    for file in [*copy.glob("stories/**/*.py"), copy / "stories/manifest.toml"]:
        file.write_text(file.read_text(encoding="utf-8").replace(FIXED_PORT, port), encoding="utf-8")
    return copy


def put_between(harness, way, proxy, port):
    import anyio
    from mcp import StdioServerParameters

    self_hosted = harness._self_hosted

    @asynccontextmanager
    async def behind_listener(name, cfg):
        # The server's metadata name the listener's port, as those of any server behind a reverse proxy.
        address = f"127.0.0.1:{port if cfg['fixed_port'] else 0}"
        async with self_hosted(name, cfg | {"fixed_port": 0}) as url:
            async with await anyio.open_process([*proxy, url, "--listen", address], stderr=PIPE) as listener:
                said = (await listener.stderr.receive()).decode()
                yield said.removeprefix("assay: listening on ").split()[0]
                listener.terminate()
                if await listener.wait() != 0:
                    raise RuntimeError(f"the listener ended with {listener.returncode}")

    def over_bridge(_file, url):
        params = StdioServerParameters(command=proxy[0], args=[*proxy[1:], url], env=dict(os.environ))
        return lambda: params

    if way == "listener":
        harness._self_hosted = behind_listener
    else:
        harness.target_from_args = over_bridge


def run(name, cfg, way):
    """The story's outcome, or None when it is not for this way, or the same in either era."""
    client = f"stories.{name}.client"
    if name in WITHOUT_HTTP or (way == "bridge" and (cfg["needs_http"] or cfg["fixed_port"])):
        return None
    if "--legacy" in sys.argv and cfg["era"] != "dual":
        return None
    os.environ.update(cfg["env"])
    try:
        runpy.run_module(client, run_name="__main__")
    except SystemExit as end:
        return "failed" if end.code else "passed"
    finally:
        for variable in cfg["env"]:
            del os.environ[variable]
    return "passed"


def main(examples, out, way, proxy, *flags):
    port = free_port()
    examples = with_port(examples, port)
    # Before the copy that the interpreter finds by itself; for the servers, too.
    sys.path.insert(0, str(examples))
    os.environ["PYTHONPATH"] = str(examples)
    import stories._harness as harness

    put_between(harness, way, json.loads(proxy), port)
    sys.argv[1:] = ["--http", *flags]
    names = sorted(client.parent.name for client in examples.glob("stories/*/client.py"))
    outcomes = {name: outcome for name in names if (outcome := run(name, harness._story_cfg(name), way))}
    Path(out).write_text(json.dumps(outcomes), encoding="utf-8")
    shutil.rmtree(examples)


if __name__ == "__main__":
    main(*sys.argv[1:])
