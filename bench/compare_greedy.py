#!/usr/bin/env python3
"""Greedy texts of quince beside llama.cpp's on the same model, and what the exact model says where they part.

  bench/compare_greedy.py --quince build/release/quince --llama-server PATH MODEL.gguf [--raw] [--prompts FILE.json]

Both get the same prompt tokens (llama.cpp's template and tokenizer; quince is asked for its own, they must agree).
At the first different token, transformers computes the logits of the dequantized weights in f32: the gap between the
two choices, and whose choice the exact model would have made. Needs torch, transformers and gguf (PyPI).
"""
import argparse
import json
import os
import subprocess
import time
import urllib.request

PROMPTS = [
    "What is the capital of France?", "Write a haiku about the sea.", "Explain photosynthesis to a child.",
    "List three uses of a paperclip.", "Translate 'good morning' into Spanish.", "What is 12 times 7?",
    "Who wrote Hamlet?", "Give me a recipe for pancakes.", "Why is the sky blue?", "Name the planets of the solar system.",
    "Write a Python function that adds two numbers.", "What is a black hole?", "Tell me a short joke.",
    "Summarize the story of Cinderella.", "What does HTTP stand for?", "How do I boil an egg?",
    "Describe the colour red to a blind person.", "What is the largest ocean?", "Give advice for a job interview.",
    "Write one sentence about autumn."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--quince", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompts")
    args = parser.parse_args()
    prompts = json.load(open(args.prompts)) if args.prompts else PROMPTS

    port = 18080
    server = subprocess.Popen([args.llama_server, "-m", args.model, "--port", str(port), "-t", "2", "--jinja", "-c", "2048"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def post(path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=300))

    rows = []
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health")
                break
            except OSError:
                time.sleep(0.5)
        for prompt in prompts:
            text = prompt if args.raw else post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
            ids = post("/tokenize", {"content": text, "add_special": True, "parse_special": not args.raw})["tokens"]
            theirs = post("/completion", {"prompt": ids, "n_predict": args.tokens, "temperature": 0, "cache_prompt": False,
                                          "return_tokens": True})["tokens"]
            command = [args.quince, "run", args.model, prompt, "--temp", "0", "--max-tokens", str(args.tokens), "--json"]
            ours = json.loads(subprocess.run(command + (["--raw"] if args.raw else []), capture_output=True, text=True, check=True).stdout)
            assert ours["prompt_tokens"] == len(ids), (prompt, ours["prompt_tokens"], len(ids))
            rows.append((prompt, ids, theirs, ours["token_ids"]))
    finally:
        server.kill()

    import torch
    from transformers import AutoModelForCausalLM
    folder, name = os.path.split(os.path.abspath(args.model))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    if "gemma" in name:  # transformers rounds sqrt(hidden) to bf16 for checkpoints; the GGUF's model does the same
        model.model.embed_tokens.embed_scale.fill_(float(torch.tensor(model.config.hidden_size ** 0.5).bfloat16()))
    equal = ours_right = theirs_right = 0
    for prompt, ids, theirs, ours in rows:
        n = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
        if n >= min(len(theirs), len(ours)):
            equal += 1
            print(f"same ({n} tokens)      {prompt}")
            continue
        with torch.no_grad():
            logits = model(torch.tensor([ids + ours[:n]])).logits[0, -1]
        gap = (logits[ours[n]] - logits[theirs[n]]).item()
        best = int(logits.argmax())
        ours_right += best == ours[n]
        theirs_right += best == theirs[n]
        p = torch.softmax(logits, -1)
        print(f"part at {n:3}  gap {gap:+.3f} (p {p[ours[n]]:.3f} / {p[theirs[n]]:.3f})  exact choice: "
              f"{'quince' if best == ours[n] else 'llama.cpp' if best == theirs[n] else 'neither'}   {prompt}")
    print(f"{equal} of {len(rows)} equal; where they part the exact model sides with quince {ours_right} times, with llama.cpp {theirs_right} times")


if __name__ == "__main__":
    main()
