#!/usr/bin/env python3
"""What a gateway adds to the time to the first byte of an answer: the same request in turn to a server itself and to
the gateway in front of it, each over a connection that is kept.

  bench/gateway_hop.py SERVER_URL GATEWAY_URL [--model NAME] [--requests 500] [--stub PORT] [--json]

--stub PORT: first starts a server on that port that answers at once, so that nothing but the hop is measured;
SERVER_URL is then http://127.0.0.1:PORT. Only the standard library is used.
"""
import argparse
import json
import socket
import statistics
import threading
import time
import urllib.parse

STUB_ANSWER = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
               b"10\r\ndata: {\"a\": 1}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def serve_stub(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    held = b""
    while True:
        data = connection.recv(65536)
        if not data:
            return
        held += data
        while b"\r\n\r\n" in held:
            head, rest = held.split(b"\r\n\r\n", 1)
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(rest) < length:
                break
            held = rest[length:]
            connection.sendall(STUB_ANSWER)


def stub(port):
    listener = socket.create_server(("127.0.0.1", port))

    def accept():
        while True:
            threading.Thread(target=serve_stub, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()


class Connection:
    def __init__(self, url, model):
        address = urllib.parse.urlparse(url)
        self.socket = socket.create_connection((address.hostname, address.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Say something."}], "max_tokens": 2,
                           "temperature": 0, "stream": True}).encode()
        self.request = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % (address.netloc.encode(), len(body)) + body)

    def first_byte(self):
        """Seconds until the answer's first event is there; reads the rest."""
        begin = time.perf_counter()
        self.socket.sendall(self.request)
        answer, first = b"", None
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("closed after: %r" % answer[-300:])
            answer += data
            if first is None and b"data: " in answer:
                first = time.perf_counter() - begin
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ValueError("no answer: %r" % answer[:300])
        return first


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("gateway")
    parser.add_argument("--model", default="")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--stub", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.stub:
        stub(options.stub)
    server, gateway = (Connection(url, options.model) for url in (options.server, options.gateway))
    for _ in range(20):  # warm-up
        server.first_byte()
        gateway.first_byte()
    direct, through = [], []
    for _ in range(options.requests):
        direct.append(server.first_byte())
        through.append(gateway.first_byte())
    added = [b - a for a, b in zip(direct, through)]
    row = {"requests": options.requests}
    for name, values in (("direct", direct), ("gateway", through), ("added", added)):
        row[name + "_ms_p50"] = round(statistics.median(values) * 1e3, 3)
        row[name + "_ms_p99"] = round(percentile(values, 0.99) * 1e3, 3)
    print(json.dumps(row) if options.json else "\n".join(f"{name:16} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
