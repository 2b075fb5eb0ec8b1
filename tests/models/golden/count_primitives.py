"""How many MLX primitives mlx-lm's graph of one forward holds, for the tiny models of make_models.py.

Writes primitives.json: for each model, dense f32 and 4-bit (groups of 32), the counts of one decode step and of
a prompt of 20 tokens, on a cache that is already past every window. Two numbers each: "cpu" as the CPU backend builds
it, and "gpu", where every fast operation (rms_norm, rope, attention, dequantize) is one primitive instead of the
fallback that the CPU backend expands it to.

  python count_primitives.py      needs mlx, mlx-lm (versions are written)
"""

import importlib
import io
import json
import pathlib

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
from mlx.utils import tree_map
from mlx_lm.models.cache import make_prompt_cache

HERE = pathlib.Path(__file__).parent
MODULES = {"gemma3_text": "gemma3_text", "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
# mlx-lm ignores the windows of the first two and the biases of the third: its graphs are of other models.
SKIPPED = ["mistral", "qwen2_window", "qwen3_bias"]
QUANTIZED = ["llama", "qwen2", "qwen3", "gemma3"]


def count(array):
    text = io.StringIO()
    mx.export_to_dot(text, array)
    return text.getvalue().count("shape=rectangle")


class FastOps:
    """Counts, call by call, the primitives that a fast operation expands to beyond one."""

    def __init__(self):
        self.surplus = 0
        for name in ("rms_norm", "rope", "scaled_dot_product_attention"):
            setattr(mx.fast, name, self.wrap(getattr(mx.fast, name)))
        mx.dequantize = self.wrap(mx.dequantize)

    def wrap(self, real):
        def leaf(x):
            if not isinstance(x, mx.array):
                return x
            y = mx.zeros(x.shape, x.dtype)
            mx.eval(y)
            return y

        def call(*args, **kwargs):
            alone = real(*map(leaf, args), **{k: leaf(v) for k, v in kwargs.items()})
            self.surplus += count(alone) - 1
            return real(*args, **kwargs)

        return call


FAST = FastOps()


def measure(model, vocab):
    cache = make_prompt_cache(model)
    tokens = mx.arange(20)[None] % vocab
    mx.eval(model(tokens, cache=cache))
    result = {}
    for what, more in (("decode", tokens[:, :1]), ("prompt", tokens)):
        mx.eval(more)
        FAST.surplus = 0
        logits = model(more, cache=cache)
        result[what] = {"cpu": count(logits), "gpu": count(logits) - FAST.surplus}
        mx.eval(logits)
    return result


def main():
    assert mx.default_device() == mx.cpu
    table = {"made_by": f"mlx-lm {mlx_lm.__version__}, mlx {mx.__version__}"}
    for path in sorted(HERE.glob("*.json")):
        golden = json.loads(path.read_text())
        if "tensors" not in golden or path.stem in SKIPPED:
            continue
        config = golden["config"]
        if "rope_parameters" in config:  # mlx-lm reads the older form
            config = {**config, "rope_scaling": config["rope_parameters"]}
        module = importlib.import_module("mlx_lm.models." + MODULES[config["model_type"]])
        args = module.ModelArgs.from_dict(config)
        kinds = {}
        for kind in ("dense", "4-bit") if path.stem in QUANTIZED else ("dense",):
            model = module.Model(args)
            if path.stem == "gemma3":
                model.sanitize({})  # ties the head, as a checkpoint without one does
            if kind == "4-bit":
                nn.quantize(model, group_size=32, bits=4)
            mx.eval(model.parameters())
            kinds[kind] = measure(model, config["vocab_size"])
        table[path.stem] = kinds
        print(path.stem, kinds)
    (HERE / "primitives.json").write_text(json.dumps(table, indent=1) + "\n")


main()
