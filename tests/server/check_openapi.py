#!/usr/bin/env python3
"""schemathesis against `quince serve`: whatever is asked, the answers are as /openapi.json says and none is a 5xx. Needs
`pip install schemathesis`; says so and ends with 77 (skipped) where it is missing.

  tests/server/check_openapi.py [--quince PATH] [--model PATH] [--seconds 60] [--seed N]
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import serving  # noqa: E402

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main():
    try:
        import schemathesis  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}; pip install schemathesis")
        return 77
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--seed", type=int, default=1)
    args = serving.arguments(parser)
    # Any model's name is right, so that what stands behind it is reached. Answers are short, and more of them than
    # may wait are refused: 128 of each of several prompts would take a minute. One worker: it finds the queue empty.
    flags = ["--alias", "m,*", "--ctx-size", "64", "--max-tokens", "4", "--parallel", "8", "--max-queue", "24"]
    with tempfile.TemporaryDirectory() as folder, serving.Serving(
        args.quince, args.model, *flags, "--slot-save-path", folder
    ) as server:
        # Not its "coverage" phase: making cases for these schemas ends in errors of its own (4.32.5).
        command = [sys.executable, "-c",
                   "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())",
                   "run", server.url + "/openapi.json", "--checks", CHECKS, "--phases", "examples,fuzzing",
                   "--max-time", str(args.seconds), "--max-examples", "1000", "--continue-on-failure",
                   "--workers", "1", "--seed", str(args.seed), "--request-timeout", "60",
                   "--generation-database", "none", "--suppress-health-check", "all", "--no-color",
                   "--warnings", "off", "--max-failures", "30"]
        status = subprocess.run(command, cwd=folder, timeout=args.seconds + 240).returncode
        health = server.get("/health")
        assert health == {"status": "ok"}, health
        server.soon("/slots", lambda slots: not any(slot["is_processing"] for slot in slots))
    print("1 passed, 0 failed" if status == 0 else "0 passed, 1 failed")
    return status


if __name__ == "__main__":
    sys.exit(main())
