#!/usr/bin/env python3
"""Does mlx-lm read what `quince convert` writes, and say the same?

  check_mlx_lm.py QUINCE MODEL [--tokens 24]

MODEL is converted in several ways; each result is loaded by mlx-lm, everything in f32 on the CPU, and its greedy
tokens are compared with those of `quince run` on the same folder, for several prompts. The prompts' own tokens are
compared too. Needs mlx-lm; exit status 1 when anything differs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler

FORMS = {
    "as it is, f32": ["--dtype", "f32"],
    "4-bit g64": ["--q-bits", "4", "--q-group-size", "64"],
    "8-bit g32, f16": ["--q-bits", "8", "--q-group-size", "32", "--dtype", "f16"],
    "plain bf16": ["-d", "--dtype", "bf16"],
}
PROMPTS = [
    "What is a quince?",
    "Write the numbers from one to ten in French.",
    "def fibonacci(n):\n    ",
]


def mlx_lm_tokens(model, tokenizer, prompt, count):
    if tokenizer.chat_template:
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True
        )
    else:
        ids = tokenizer.encode(prompt)
    out = [
        piece.token
        for piece in stream_generate(
            model, tokenizer, ids, max_tokens=count, sampler=make_sampler(temp=0)
        )
    ]
    if out and out[-1] in tokenizer.eos_token_ids:
        out.pop()
    return len(ids), out


def quince_tokens(quince, folder, prompt, count):
    command = [quince, "run", str(folder), prompt, "--json", "--temp", "0", "-n", str(count)]
    command += ["--kernels", "mlx", "--dtype", "f32", "--device", "cpu", "--quiet"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return answer["prompt_tokens"], answer["token_ids"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quince")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=24)
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    different = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (form, flags) in enumerate(FORMS.items()):
            folder = Path(scratch) / f"form{number}"
            subprocess.run(
                [arguments.quince, "convert", arguments.model, str(folder), "--quiet", *flags],
                check=True,
            )
            model, tokenizer = load(str(folder))
            model.update(
                tree_map(
                    lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p,
                    model.parameters(),
                )
            )
            for prompt in PROMPTS:
                theirs = mlx_lm_tokens(model, tokenizer, prompt, arguments.tokens)
                ours = quince_tokens(arguments.quince, folder, prompt, arguments.tokens)
                same = theirs == ours
                different += not same
                print(f"{'same' if same else 'DIFFERENT'}: {form}: {prompt!r}")
                if not same:
                    print(f"  mlx-lm {theirs}\n  quince {ours}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
