#!/usr/bin/env python3
"""What streaming clients see of an OpenAI-compatible server: tokens a second, time to the first token, memory.

  bench/serve_load.py URL [--clients 1,8,16] [--requests 4] [--words 60] [--tokens 64] [--pid PID]

Each client sends its requests one after another: prompts of random words (so none begins like
another), answers of a fixed length, streamed. PID: the server's process; its resident memory is read afterwards. Only
the standard library is used, and little of each event is looked at, so that the client takes as little as it can of
the processor that it shares with the server.
"""
import argparse
import asyncio
import json
import random
import re
import statistics
import time
import urllib.parse

WORDS = """time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city community name president team minute idea body information back
parent face others level office door health person art war history party result change morning reason research girl
guy moment air teacher force education""".split()
CONTENT = re.compile(rb'"(?:content|text)":"[^"]')
TOKENS = re.compile(rb'"completion_tokens":(\d+)')


async def one_request(reader, writer, host, words, tokens, rng):
    prompt = " ".join(rng.choice(WORDS) for _ in range(words))
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0,
                       "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}).encode()
    begin = time.perf_counter()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % (host.encode(), len(body)) + body)
    first, tail, gaps, last = None, b"", [], begin
    while True:
        data = await reader.read(65536)
        if not data:
            raise ConnectionError("the server closed the connection after: %r" % tail[-300:])
        now = time.perf_counter()
        tail = tail[-2000:] + data
        if first is None and CONTENT.search(tail):
            first = now - begin
        elif first is not None:
            gaps.append(now - last)
        last = now
        if tail.endswith(b"\r\n0\r\n\r\n"):
            break
    found = TOKENS.findall(tail)
    if not found or first is None:
        raise ValueError("no answer: %r" % tail[-500:])
    return int(found[-1]), first, now - begin, gaps


async def connect(address):
    if address.scheme == "unix":
        return await asyncio.open_unix_connection(address.path)
    return await asyncio.open_connection(address.hostname, address.port)


async def client(address, requests, words, tokens, seed):
    rng = random.Random(seed)
    results = []
    for _ in range(requests):
        reader, writer = await connect(address)  # anew: some servers end a connection that was idle
        results.append(await one_request(reader, writer, address.netloc or "unix", words, tokens, rng))
        writer.close()
    return results


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


async def measure(address, clients, options, seed):
    begin = time.perf_counter()
    done = await asyncio.gather(*(client(address, options.requests, options.words, options.tokens, seed + i)
                                  for i in range(clients)))
    seconds = time.perf_counter() - begin
    results = [result for one in done for result in one]
    firsts = sorted(result[1] for result in results)
    gaps = sorted(gap for result in results for gap in result[3]) or [0]
    return {"clients": clients, "requests": len(results), "seconds": round(seconds, 3),
            "tok_s": round(sum(result[0] for result in results) / seconds, 1),
            "ttft_ms_p50": round(statistics.median(firsts) * 1e3, 2),
            "ttft_ms_max": round(firsts[-1] * 1e3, 2),
            "gap_ms_p50": round(gaps[len(gaps) // 2] * 1e3, 3),
            "gap_ms_p99": round(gaps[len(gaps) * 99 // 100] * 1e3, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--clients", default="1,8,16")
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pid", type=int)
    options = parser.parse_args()
    address = urllib.parse.urlparse(options.url)
    asyncio.run(measure(address, 1, argparse.Namespace(**{**vars(options), "requests": 1}), -1))  # warm-up
    for clients in map(int, options.clients.split(",")):
        row = asyncio.run(measure(address, clients, options, options.seed + clients * 1000))
        if options.pid:
            row.update({name + "_mb": round(value, 1) for name, value in resident(options.pid).items()})
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
