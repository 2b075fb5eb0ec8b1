#!/usr/bin/env python3
"""What streaming clients see of an OpenAI-compatible server: tokens a second, time to the first token, memory.

  bench/serve_load.py URL [--clients 1,8,16] [--requests 4] [--words 60] [--tokens 64] [--pid PID]

Each client sends its requests one after another: prompts of random words (so none begins like
another), answers of a fixed length, streamed. PID: the server's process; its resident memory is read afterwards. Only
the standard library is used, all clients share one loop, and little of each event is looked at, so that they take as
little as they can of the processor that they share with the server.
"""
import argparse
import json
import random
import re
import select
import socket
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


class Client:
    """Sends its requests one after another, each on a new connection: some servers end one that was idle."""

    def __init__(self, address, options, seed):
        self.address = address
        self.options = options
        self.rng = random.Random(seed)
        self.left = options.requests
        self.results = []  # (tokens, seconds to the first, seconds, gaps between reads)
        self.socket = None

    def begin(self):
        prompt = " ".join(self.rng.choice(WORDS) for _ in range(self.options.words))
        body = json.dumps({"messages": [{"role": "user", "content": prompt}], "max_tokens": self.options.tokens,
                           "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
                           "ignore_eos": True}).encode()
        self.left -= 1
        self.pieces, self.tail, self.first, self.gaps = [], b"", None, []
        if self.address.scheme == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(self.address.path)
        else:
            self.socket = socket.create_connection((self.address.hostname, self.address.port))
        self.began = self.last = time.perf_counter()
        self.socket.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % ((self.address.netloc or "unix").encode(), len(body)) + body)
        self.socket.setblocking(False)

    def read(self):
        """What has come; whether the answer is whole."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server closed the connection after: %r" % b"".join(self.pieces)[-300:])
        now = time.perf_counter()
        self.pieces.append(data)
        if self.first is not None:
            self.gaps.append(now - self.last)
        elif CONTENT.search(b"".join(self.pieces)):
            self.first = now - self.began
        self.last = now
        self.tail = (self.tail + data)[-7:]  # the last chunk comes in any pieces
        if self.tail != b"\r\n0\r\n\r\n":
            return False
        self.socket.close()
        answer = b"".join(self.pieces)
        found = TOKENS.findall(answer)
        if not found or self.first is None:
            raise ValueError("no answer: %r" % answer[-500:])
        self.results.append((int(found[-1]), self.first, now - self.began, self.gaps))
        return True


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}


def measure(address, clients, options, seed):
    begin = time.perf_counter()
    everyone = [Client(address, options, seed + i) for i in range(clients)]
    poll, open_by = select.epoll(), {}

    def start(one):
        one.begin()
        open_by[one.socket.fileno()] = one
        poll.register(one.socket, select.EPOLLIN)

    for one in everyone:
        start(one)
    while open_by:
        for number, _ in poll.poll():
            one = open_by[number]
            if one.read():
                del open_by[number]  # closing has taken it from the poll
                if one.left:
                    start(one)
    seconds = time.perf_counter() - begin
    results = [result for one in everyone for result in one.results]
    firsts = sorted(result[1] for result in results)
    gaps = sorted(gap for result in results for gap in result[3]) or [0]
    return {"clients": clients, "requests": len(results), "seconds": round(seconds, 3),
            "tok_s": round(sum(result[0] for result in results) / seconds, 1),
            "ttft_ms_p50": round(statistics.median(firsts) * 1e3, 2),
            "ttft_ms_p99": round(firsts[(len(firsts) - 1) * 99 // 100] * 1e3, 2),
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
    measure(address, 1, argparse.Namespace(**{**vars(options), "requests": 1}), -1)  # warm-up
    for clients in map(int, options.clients.split(",")):
        row = measure(address, clients, options, options.seed + clients * 1000)
        if options.pid:
            row.update({name + "_mb": round(value, 1) for name, value in resident(options.pid).items()})
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
