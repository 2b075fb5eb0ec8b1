"""What the checks of client packages share: the servers that they ask, a tool, and how checks run and are told of.

Any chat model will do and a small one answers nonsense: shapes, types, reasons and sameness are checked, never words.
"""
import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
import typing

import pydantic

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import serving  # noqa: E402

MODEL = "small"
LONG = 6000  # tokens: an answer that is still being made when its client has gone
# Deterministic, so that two equal requests have equal answers whatever else runs; else as llama-server is called.
FLAGS = ["-a", MODEL, "-c", "8192", "-np", "8", "-cb", "-fa", "on", "-to", "60", "--webui", "--no-context-shift",
         "--deterministic"]

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather in Rome?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]},
                                               "days": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["city", "days"], "additionalProperties": False}


class Weather(pydantic.BaseModel):
    """The weather in a city. Every value is bounded, so that each answer held to this ends."""
    model_config = pydantic.ConfigDict(extra="forbid")
    city: typing.Literal["Rome", "Oslo"]
    rain: bool
    sky: typing.Literal["clear", "grey"]


def is_weather_call(arguments):
    """Whether that is what PARAMETERS allow."""
    return (sorted(arguments) == ["city", "days"] and arguments["city"] in ("Rome", "Oslo")
            and type(arguments["days"]) is int and 1 <= arguments["days"] <= 9)


def fails(kind, call, status=None):
    """The error of that class that the call ends with; no other will do."""
    try:
        answer = call()
    except kind as error:
        assert type(error) is kind, f"{error!r}, not {kind}"
        assert status is None or error.status_code == status, error
        return error
    raise AssertionError(f"{answer} instead of {kind}")


def alone(server):
    """Waits until nothing is computed any more: far less than an answer of LONG tokens takes."""
    server.soon("/slots", lambda slots: not any(slot["is_processing"] for slot in slots), seconds=5)


def busy(server):
    server.soon("/slots", lambda slots: any(slot["is_processing"] for slot in slots))


@contextlib.contextmanager
def keyed_server(args):
    """A server that wants keys: gives it, a key that is good, and one that is good for one request a minute."""
    def new_key(name):
        key, line = subprocess.run([args.quince, "key", "new", name], stdout=subprocess.PIPE, check=True,
                                   text=True).stdout.split("\n", 1)
        return key, line
    good, good_line = new_key("good")
    slow, slow_line = new_key("slow")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "quince.toml")
        config.write_text(f"{good_line}\n{slow_line}\nrpm = 1\n")
        with serving.Serving(args.quince, args.model, *FLAGS, "--config", str(config)) as server:
            yield server, good, slow


def main(description, checks, keyed_checks=()):
    """Runs checks(server) and keyed_checks(server, key, slow key); the exit status."""
    args = serving.arguments(argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter))
    failed = 0

    def run(check, *given):
        nonlocal failed
        began = time.monotonic()
        try:
            check(*given)
            print(f"  {check.__name__} passed in {time.monotonic() - began:.1f} s", flush=True)
        except Exception:  # pylint: disable=broad-except # told of, and counted
            failed += 1
            traceback.print_exc()
            print(f"  {check.__name__} FAILED", flush=True)

    with serving.Serving(args.quince, args.model, *FLAGS) as server:
        for check in checks:
            run(check, server)
    if keyed_checks:
        with keyed_server(args) as given:
            for check in keyed_checks:
                run(check, *given)
    print(f"{len(checks) + len(keyed_checks) - failed} passed, {failed} failed")
    return 1 if failed else 0
