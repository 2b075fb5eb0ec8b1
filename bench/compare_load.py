#!/usr/bin/env python3
"""Load time of quince beside reading the file, in turn on the same machine.

  bench/compare_load.py --quince build/release/quince MODEL.gguf... [--runs 9] [--cold]

Reading is read(2) of the whole file into fresh memory of the process, which is what a program that keeps the weights
must do at the least. `cat` copies into one small buffer, over and over, and is shown beside it. Both start from a warm
page cache, or, with --cold, from one without the file.
"""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import time


def make_cold(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_fresh(path):
    size = os.path.getsize(path)
    begin = time.perf_counter()
    with open(path, "rb", buffering=0) as file, mmap.mmap(-1, size) as memory:
        done = 0
        with memoryview(memory) as view:
            while done < size:
                done += os.readv(file.fileno(), [view[done:done + (8 << 20)]])
        return time.perf_counter() - begin


def cat(path):
    begin = time.perf_counter()
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def load(quince, path):
    command = [quince, "run", path, "hi", "--max-tokens", "1", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout)["timings"]["load_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--quince", required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    for path in options.models:
        ways = {"load": lambda: load(options.quince, path), "read": lambda: read_fresh(path), "cat": lambda: cat(path)}
        seconds = {name: [] for name in ways}
        for _ in range(options.runs + 1):
            for name, way in ways.items():
                make_cold(path) if options.cold else cat(path)
                seconds[name].append(way())
        ratios = [a / b for a, b in zip(seconds["load"][1:], seconds["read"][1:])]
        print(json.dumps({
            "model": os.path.basename(path), "bytes": os.path.getsize(path), "cold": options.cold,
            **{name: round(statistics.median(values[1:]), 4) for name, values in seconds.items()},
            "load_to_read": {"min": round(min(ratios), 2), "median": round(statistics.median(ratios), 2),
                             "max": round(max(ratios), 2)}}))


if __name__ == "__main__":
    main()
