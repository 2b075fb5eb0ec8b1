#!/usr/bin/env python3
"""Runs `quince bench` and llama.cpp's own benchmarks in turn on the same cores and prints the ratio of each pair.

  bench/compare_llama_cpp.py --quince build/release/quince --llama DIR_WITH_llama-bench MODEL.gguf [MODEL.gguf ...]

Each run of each program measures once (its own warm-up first); the medians are over the runs. One JSON line a
figure with --json. Build llama.cpp with clang, GGML_NATIVE=ON, GGML_OPENMP=OFF for its best on CPU.
"""
import argparse
import json
import os
import statistics
import subprocess


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode}):\n{done.stderr[-2000:]}")
    return done.stdout


def quince(args, model, test):
    kind, n, depth = test
    sizes = ["-p", str(n), "-n", "0"] if kind == "prompt" else ["-p", "0", "-n", str(n)]
    batch = str(n_batch(test))
    out = run([args.quince, "bench", model, *sizes, "-b", batch, "-d", str(depth), "-r", "1", "-t", str(args.threads), "--json"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    rows = [r for r in rows if "tok_s" in r]
    assert len(rows) == 1, out
    return rows[0]["tok_s"]["median"]


def n_batch(test):
    return int(test[0].split("x")[1]) if "x" in test[0] else 1


def llama(args, model, test):
    kind, n, depth = test
    if n_batch(test) > 1:
        out = run([os.path.join(args.llama, "llama-batched-bench"), "-m", model, "-c", "8192", "-b", "2048", "-ub", "512",
                   "-npp", "64", "-ntg", str(n), "-npl", str(n_batch(test)), "-t", str(args.threads), "--output-format", "jsonl"])
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return rows[-1]["speed_tg"]
    sizes = ["-p", str(n), "-n", "0"] if kind == "prompt" else ["-p", "0", "-n", str(n)]
    out = run([os.path.join(args.llama, "llama-bench"), "-m", model, *sizes, "-d", str(depth), "-r", "1", "-t", str(args.threads), "-o", "json"])
    return json.loads(out)[0]["avg_ts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--quince", required=True)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batches", default="", help="batch sizes of decode to compare, e.g. 4,16,32")
    parser.add_argument("--depth", type=int, default=0, help="also decode at this context length")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    tests = [("prompt", 512, 0), ("decode", 128, 0)]
    tests += [(f"decode x{b}", 64, 0) for b in args.batches.split(",") if b]
    if args.depth:
        tests.append(("decode", 64, args.depth))
    for model in args.models:
        for test in tests:
            pairs = [(quince(args, model, test), llama(args, model, test)) for _ in range(args.runs)]
            ratios = sorted(a / b for a, b in pairs)
            row = {
                "model": os.path.basename(model), "test": test[0], "tokens": test[1], "depth": test[2],
                "quince": statistics.median(a for a, _ in pairs), "llama_cpp": statistics.median(b for _, b in pairs),
                "ratio": {"min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1]},
            }
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                print(f"{row['model']:36} {test[0]:>11} {test[1]:4} depth {test[2]:5}  quince {row['quince']:9.1f}"
                      f"  llama.cpp {row['llama_cpp']:9.1f}  ratio {row['ratio']['median']:.2f}"
                      f" ({ratios[0]:.2f}-{ratios[-1]:.2f})", flush=True)


main()
