#!/usr/bin/env python3
"""Answers with and without drafted tokens: the same texts, and how much quicker.

  bench/compare_drafts.py --quince build/release/quince MODEL [--prompts 200] [--draft-model SMALL]

Half of the prompts ask for free text, half for text that was there before (to repeat, to correct, to
quote). Greedy; each prompt with and without, in turn.
"""

import argparse
import json
import statistics
import subprocess
import sys

THINGS = ["a lighthouse", "an orchard", "a broken clock", "the night train", "a violin", "a glacier",
          "an old map", "the harbour", "a beehive", "a letter without an address"]
FORMS = ["Write three sentences about {}.", "Why would somebody miss {}?", "Describe {} to a child.",
         "Invent a proverb about {}.", "What could go wrong with {}?"]
SENTENCES = ["The quick brown fox jumps over the lazy dog.", "Pack my box with five dozen jugs.",
             "The ferry leaves at seven and returns at noon.", "Quinces ripen late, often in October.",
             "for (int i = 0; i < count; ++i) { total += values[i]; }",
             "Name: Ada Lovelace; born: 1815; field: mathematics; place: London."]
TASKS = ["Repeat this text exactly: {}", "Copy the following, word for word:\n{}",
         "Correct the spelling if needed, and give the whole text back: {}"]


def prompts(count):
    made = []
    for i in range(count // 2):
        made.append(("free", FORMS[i // len(THINGS) % len(FORMS)].format(THINGS[i % len(THINGS)]) + f" ({i})"))
        some = " ".join(SENTENCES[(i * k + k) % len(SENTENCES)] for k in range(1, 5))
        made.append(("repeats", TASKS[i % len(TASKS)].format(some) + f" [{i}]"))
    return made


def answer(quince, model, prompt, tokens, flags):
    out = subprocess.run([quince, "run", model, prompt, "--temp", "0", "--max-tokens", str(tokens), "--json", *flags],
                         check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quince", required=True)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--draft-model")
    parser.add_argument("model")
    args = parser.parse_args()
    drafting = ["--draft-model", args.draft_model] if args.draft_model else []
    different = 0
    times = {}
    for kind, prompt in prompts(args.prompts):
        plain = answer(args.quince, args.model, prompt, args.tokens, ["--num-draft-tokens", "0"])
        drafted = answer(args.quince, args.model, prompt, args.tokens, drafting)
        if plain["token_ids"] != drafted["token_ids"]:
            different += 1
            print(f"differs: {prompt!r}", file=sys.stderr)
        count = len(plain["token_ids"]) - 1
        if count < 8:
            continue
        t = drafted["timings"]
        times.setdefault(kind, []).append((plain["timings"]["generation_seconds"] / count, t["generation_seconds"] / count,
                                           t["drafted_tokens"], t["accepted_tokens"]))
    for kind, rows in sorted(times.items()):
        ratio = statistics.median(a / b for a, b, _, _ in rows)
        drafted = sum(r[2] for r in rows)
        print(f"{kind:8} {len(rows):4} answers  speed {ratio:.2f} times (median)  "
              f"drafted {drafted}, right {sum(r[3] for r in rows)}")
    print(f"{different} of {args.prompts} answers differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
