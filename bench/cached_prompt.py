#!/usr/bin/env python3
"""Time to the first token of a prompt that is cached beside the time without: in memory, and on disk after a restart.

  bench/cached_prompt.py --quince build/release/quince MODEL.gguf [--tokens 1500] [--prompts 7]

Through HTTP, streamed, temperature 0. Each prompt is its own random text. First all are asked cold and, right behind,
again (memory); then the server is stopped and started on the same --cache-dir, and all are asked once more (disk). The
server has answered another prompt before anything is timed. One JSON object: medians in ms, and ratios to cold.
"""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/server"))
import serving  # noqa: E402
from serve_load import WORDS  # noqa: E402


def first_token_ms(server, text):
    """The milliseconds until the first event with text, and how many tokens of the prompt were cached, of how many."""
    host = server.url.split("//")[1]
    body = json.dumps({"prompt": text, "max_tokens": 2, "temperature": 0, "stream": True, "ignore_eos": True,
                       "stream_options": {"include_usage": True}})
    connection = http.client.HTTPConnection(host)
    connection.connect()
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    first = answer.readline()
    took = (time.perf_counter() - begin) * 1e3
    assert first.startswith(b"data: ") and b'"text"' in first, first
    usage = [json.loads(line[6:])["usage"] for line in answer.read().splitlines()
             if line.startswith(b"data: {") and b'"usage":{' in line][-1]
    connection.close()
    return took, usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quince", required=True)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--prompts", type=int, default=7)
    options = parser.parse_args()
    rng = random.Random(1)
    # A word of these is one token for most vocabularies.
    texts = [" ".join(rng.choice(WORDS) for _ in range(options.tokens)) for _ in range(options.prompts + 1)]
    times = {"cold": [], "memory": [], "disk": []}
    tokens = set()

    def ask(server, kind, text):
        took, cached, whole = first_token_ms(server, text)
        assert (cached == 0) == (kind == "cold") and (kind == "cold" or cached > whole * 0.9), (kind, cached, whole)
        times[kind].append(took)
        tokens.add(whole)

    with tempfile.TemporaryDirectory() as folder:
        flags = ["--cache-dir", folder, "--ctx-size", str(options.tokens * 2)]
        with serving.Serving(options.quince, options.model, *flags) as server:
            first_token_ms(server, texts[-1])
            for text in texts[:-1]:
                ask(server, "cold", text)
                ask(server, "memory", text)
        with serving.Serving(options.quince, options.model, *flags) as server:
            first_token_ms(server, "Another text.")
            for text in texts[:-1]:
                ask(server, "disk", text)
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    print(json.dumps({
        "tokens": sorted(tokens), **{kind + "_ms": round(value, 2) for kind, value in medians.items()},
        **{kind + "_to_cold": round(medians[kind] / medians["cold"], 4) for kind in ("memory", "disk")},
        "memory_ms_min_max": [round(min(times["memory"]), 2), round(max(times["memory"]), 2)],
        "disk_ms_min_max": [round(min(times["disk"]), 2), round(max(times["disk"]), 2)]}))


if __name__ == "__main__":
    main()
