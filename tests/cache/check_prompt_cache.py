#!/usr/bin/env python3
"""Do quince and mlx-lm read each other's prompt caches, and go on alike?

  check_prompt_cache.py QUINCE MODEL [--tokens 16]

MODEL is converted to plain f32 weights, and mlx-lm loads the result, on the CPU. A prompt is computed by one program,
written to a file, read by the other, and gone on from greedily; the tokens must be those of mlx-lm going on from its
own cache. Kinds of caches: plain (or what the model wants: windows), rotating (--max-kv-size), and mlx-lm's
quantized ones, which quince reads. The two see different things while several tokens enter a ring that is full, so
rings are gone on from by one token, and each program's file is judged by that program. Needs mlx-lm; exit status 1
when anything differs.
"""

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm import load, stream_generate
from mlx_lm.models.cache import KVCache, RotatingKVCache, load_prompt_cache, make_prompt_cache, save_prompt_cache
from mlx_lm.sample_utils import make_sampler

TEXT = (
    "The quince is the sole member of the genus Cydonia in the family Rosaceae. It is a deciduous tree that bears "
    "hard, aromatic bright golden-yellow pome fruit, similar in appearance to a pear. Ripe quince fruits are hard, "
    "tart, and astringent. They are eaten raw or processed into marmalade, jam, paste or alcoholic beverages. "
)
RESTS = ["In short, a quince is", " Its seeds are"]
ONE_TOKEN = ["They", " The"]
KERNELS = {
    "mlx kernels": ["--kernels", "mlx", "--dtype", "f32"],
    "native kernels": ["--kernels", "native", "--cache-type-k", "f32", "--cache-type-v", "f32"],
}


def cache_of(model, ids, size):
    cache = make_prompt_cache(model)
    if size:  # a model that makes its own caches does not ask for it
        cache = [
            RotatingKVCache(max_size=size, keep=4) if isinstance(c, KVCache) else RotatingKVCache(min(size, c.max_size))
            for c in cache
        ]
    for at in range(0, len(ids), 64):
        model(mx.array(ids[at : at + 64])[None], cache=cache)
        mx.eval([c.state for c in cache])
    return cache


def theirs(model, tokenizer, cache, ids, count):
    pieces = stream_generate(
        model, tokenizer, ids, max_tokens=count, sampler=make_sampler(temp=0), prompt_cache=copy.deepcopy(cache)
    )
    out = [piece.token for piece in pieces]
    return out[:-1] if out and out[-1] in tokenizer.eos_token_ids else out


def ours(quince, folder, rest, file, count, flags):
    command = [quince, "run", str(folder), rest, "--raw", "--json", "--temp", "0", "-n", str(count), "--quiet"]
    command += ["--prompt-cache-file", str(file), "--device", "cpu", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    return json.loads(done.stdout)["token_ids"]


class Check:
    def __init__(self):
        self.different = 0

    def same(self, what, want, got):
        self.different += want != got
        print(f"{'same' if want == got else 'DIFFERENT'}: {what}")
        if want != got:
            print(f"  mlx-lm {want}\n  quince {got}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quince")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=16)
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    check = Check()
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = Path(scratch) / "model", Path(scratch) / "cache.safetensors"
        subprocess.run(
            [arguments.quince, "convert", arguments.model, str(folder), "--quiet", "-d", "--dtype", "f32"], check=True
        )
        model, tokenizer = load(str(folder))
        model.update(
            tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p, model.parameters())
        )
        for text in [TEXT, TEXT * 8]:
            ids = tokenizer.encode(text)
            for size in [0, 48]:
                name = f"{len(ids)} tokens" + (f", rotating {size}" if size else "")
                rotation = ["--max-kv-size", str(size)] if size else []
                cache = cache_of(model, ids, size)
                coded = None
                if all(isinstance(c, KVCache) for c in cache):
                    coded = [c.to_quantized(group_size=32, bits=8) for c in cache]
                for rest in ONE_TOKEN if size else RESTS:
                    rest_ids = tokenizer.encode(rest, add_special_tokens=False)
                    assert not size or len(rest_ids) == 1
                    want = theirs(model, tokenizer, cache, rest_ids, arguments.tokens)
                    for kernels, flags in KERNELS.items():
                        if size and kernels == "mlx kernels":
                            continue  # refused, with the reason
                        save_prompt_cache(str(file), cache, {"model": str(folder)})
                        got = ours(arguments.quince, folder, rest, file, arguments.tokens, flags + rotation)
                        check.same(f"{name}: mlx-lm's file, {kernels}, {rest!r}", want, got)
                        command = [arguments.quince, "cache", "build", str(folder), "--prompt", text, "--raw"]
                        subprocess.run([*command, "-o", str(file), "--quiet", *flags, *rotation], check=True)
                        back = load_prompt_cache(str(file))
                        assert [type(c) for c in back] == [type(c) for c in cache], [type(c) for c in back]
                        got = theirs(model, tokenizer, back, rest_ids, arguments.tokens)
                        own = want
                        if size:
                            own = ours(arguments.quince, folder, rest, file, arguments.tokens, flags + rotation)
                        check.same(f"{name}: quince's file, {kernels}, {rest!r}", own, got)
                    if coded:
                        want = theirs(model, tokenizer, coded, rest_ids, arguments.tokens)
                        save_prompt_cache(str(file), coded)
                        got = ours(arguments.quince, folder, rest, file, arguments.tokens, KERNELS["mlx kernels"])
                        check.same(f"{name}: mlx-lm's 8-bit file, {rest!r}", want, got)
    return 1 if check.different else 0


if __name__ == "__main__":
    sys.exit(main())
