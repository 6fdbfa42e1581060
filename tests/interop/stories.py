"""Runs every stdio story of the Python SDK's examples in one process and writes {story: passed or failed}.

usage: stories.py EXAMPLES_DIR OUT.json    with INTEROP_WRAP as in wrap_spawn.py
"""

import json
import runpy
import sys
from pathlib import Path

import wrap_spawn  # noqa: F401  (imported for its effect)


def run(name):
    """The story's outcome, or None when it says that it is not for stdio."""
    try:
        runpy.run_module(f"stories.{name}.client", run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            return None
        return "failed" if end.code else "passed"
    return "passed"


def main(examples, out):
    sys.path.insert(0, examples)
    sys.argv[1:] = []
    names = sorted(client.parent.name for client in Path(examples, "stories").glob("*/client.py"))
    outcomes = {name: outcome for name in names if (outcome := run(name))}
    Path(out).write_text(json.dumps(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
