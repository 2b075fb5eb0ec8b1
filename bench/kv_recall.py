#!/usr/bin/env python3
"""How often a model finds facts in a long text again, with keys and values kept in fewer bits.

  bench/kv_recall.py --quince build/release/quince [--llama DIR_WITH_llama-server] MODEL.gguf [MODEL.gguf ...]

Each text has numbered facts spread over about --tokens tokens of other sentences; each question begins to repeat
one of them, and the answer counts when its number is right. One line a format: keys, values, found of asked.
"""
import argparse
import json
import os
import random
import socket
import subprocess
import time
import urllib.request

CITIES = ["Lisbon", "Oslo", "Nairobi", "Lima", "Hanoi", "Quito", "Riga", "Dakar", "Perth", "Tunis", "Minsk", "Sofia"]
FILLER = [
    "The morning train was late again and nobody on the platform seemed surprised.",
    "She put the kettle on, opened the window, and listened to the rain on the roof.",
    "A good map shows what the traveller needs and leaves out the rest.",
    "The old mill by the river has not ground any corn for sixty years.",
    "He repaired the fence in the autumn, before the first storms came from the west.",
    "Children ran through the market, and the baker gave them what was left of the bread.",
    "Nobody remembers who planted the chestnut trees along the road to the harbour.",
    "The library closes early on Fridays, but its garden stays open until the evening.",
]
FORMATS = [("f16", "f16"), ("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "q8_0"), ("q4_0", "f16"), ("f16", "q4_0"),
           ("q8_0", "q4_0"), ("q4_0", "q4_0")]


def make_text(seed, sentences):
    dice = random.Random(seed)
    facts = {city: dice.randrange(10000, 100000) for city in CITIES}
    lines = [dice.choice(FILLER) for _ in range(sentences)]
    for i, city in enumerate(CITIES):
        lines.insert(len(lines) * (i + 1) // (len(CITIES) + 1), f"The secret number of {city} is {facts[city]}.")
    return " ".join(lines), facts


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def wait_for(port, server):
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server does not answer /health")


def recall(command, args):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(command + ["--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        found = asked = tokens = 0
        for seed in range(args.texts):
            text, facts = make_text(seed, args.tokens // 15)
            for city, number in facts.items():
                prompt = f"{text} As was said above, the secret number of {city} is"
                reply = post(port, "/v1/completions", {"prompt": prompt, "max_tokens": 10, "temperature": 0})
                tokens = max(tokens, reply["usage"]["prompt_tokens"])
                found += str(number) in reply["choices"][0]["text"].replace(",", "").replace(" ", "")
                asked += 1
        return found, asked, tokens
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--quince", required=True)
    parser.add_argument("--llama", help="a folder with llama-server, to compare")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--formats", default=",".join("/".join(f) for f in FORMATS), help="keys/values,...")
    args = parser.parse_args()
    for model in args.models:
        for keys, values in (f.split("/") for f in args.formats.split(",")):
            row = [os.path.basename(model), f"keys {keys}", f"values {values}"]
            cache = ["-c", "8192", "-ctk", keys, "-ctv", values, "-np", "1"]
            found, asked, tokens = recall([args.quince, "serve", model, *cache], args)
            row += [f"quince {found} of {asked}", f"{tokens} tokens"]
            if args.llama:
                other = [os.path.join(args.llama, "llama-server"), "-m", model, "-fa", "on", *cache]
                row.append(f"llama-server {recall(other, args)[0]}")
            print("  ".join(row), flush=True)


if __name__ == "__main__":
    main()
