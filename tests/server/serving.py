"""`quince serve` for the length of a `with`: started on a free port, ended by SIGTERM, its output shown when it fails."""
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request


class Serving:
    def __init__(self, binary, model, *flags, seconds=120):
        self.command = [str(binary), "serve", str(model), "--port", "0", "--quiet", *flags]
        self.seconds = seconds

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.output, text=True)
        line = self.process.stdout.readline()  # written when the model is there
        if " listens on " not in line:
            self.process.wait(10)
            raise RuntimeError(f"{' '.join(self.command)}: {line}{self.said()}")
        self.url = line.split(" listens on ")[1].split(" ")[0]
        return self

    def __exit__(self, kind, value, trace):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if kind is None and status != 0:
            raise RuntimeError(f"the server ended with {status}: {self.said()}")
        self.output.close()

    def said(self):
        self.output.seek(0)
        return self.output.read()[-4000:]

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return json.load(answer)

    # Waits until it holds of what the path answers.
    def soon(self, path, holds, seconds=10):
        until = time.monotonic() + seconds
        while not holds(self.get(path)):
            if time.monotonic() > until:
                raise AssertionError(f"{path} is {self.get(path)}")
            time.sleep(0.02)


def arguments(parser):
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--quince", default=root / "build/release/quince", help="the program")
    parser.add_argument("--model", default=root / ".deps/models/SmolLM2-135M-Instruct.Q4_1.gguf")
    return parser.parse_args()
