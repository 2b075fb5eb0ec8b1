"""Golden logits of tiny random models, by transformers.

Weights are not stored: element i of tensor NAME is a hash of (NAME, i), made the same way here and in
tests/models/tiny_model.h, exact in f32. A golden is NAME.json (config, tensor shapes, tokens) and
NAME.f32: logits [tokens, vocab] of one forward over all tokens; for "dynamic" rope also the logits of
a token-by-token run with a cache, which differ there. Of some models NAME.states holds what the head is
applied to, [tokens, hidden].

  python make_models.py [OUT]      needs torch, transformers, numpy (versions are written to each JSON)
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
TOKENS = 40
MASK = (1 << 64) - 1


def mix(x):
    """SplitMix64's output function (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def name_seed(name):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def uniform(name, count):
    """count numbers in [-1, 1), multiples of 2^-23."""
    x = np.arange(count, dtype=np.uint64) + np.uint64(name_seed(name))
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return ((x >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23)) - np.float32(1)


def weight(name, shape, plus_one):
    """Norms near 1 (near 0 where the model adds 1), biases within 1/4, matrices near 1/sqrt(in)."""
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    if name.endswith("norm.weight"):
        return (u * np.float32(0.25)) + np.float32(0 if plus_one else 1)
    if name.endswith(".bias"):
        return u * np.float32(0.25)
    if name.endswith("embed_tokens.weight"):
        return u
    scale = np.float32(1)
    while float(scale) ** 2 * shape[-1] > 4:
        scale /= 2
    return u * scale


SMALL = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
)


def small(model_type, **more):
    return {"model_type": model_type, **SMALL, **more}


CONFIGS = {
    "llama": small("llama", head_dim=16, rope_theta=10000.0),
    # 4 heads of 6 in a hidden size of 32: head_dim is neither hidden / heads nor a power of two
    "llama_bias": small(
        "llama",
        head_dim=6,
        num_key_value_heads=1,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    ),
    "llama3": small(
        "llama",
        head_dim=16,
        rope_theta=500000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "llama_linear": small(
        "llama", num_key_value_heads=4, rope_scaling={"type": "linear", "factor": 4.0}
    ),
    "llama_dynamic": small(
        "llama",
        head_dim=16,
        max_position_embeddings=16,
        rope_scaling={"type": "dynamic", "factor": 2.0},
    ),
    "llama_yarn": small(
        "llama",
        head_dim=16,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "llama_yarn_mscale": small(
        "llama",
        head_dim=16,
        max_position_embeddings=256,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 2000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 8.0,
            "beta_slow": 1.5,
            "mscale": 1.5,
            "mscale_all_dim": 0.5,
            "truncate": False,
        },
    ),
    "mistral": small("mistral", head_dim=16, sliding_window=9),
    "qwen2": small("qwen2", rope_theta=1000000.0, tie_word_embeddings=True),
    "qwen2_window": small(
        "qwen2", use_sliding_window=True, sliding_window=7, max_window_layers=1
    ),
    "qwen3": small("qwen3", head_dim=24, rope_theta=1000000.0),
    "qwen3_bias": small("qwen3", head_dim=24, attention_bias=True, tie_word_embeddings=True),
    "gemma3": small(
        "gemma3_text",
        num_hidden_layers=4,
        head_dim=16,
        sliding_window=8,
        sliding_window_pattern=3,
        query_pre_attn_scalar=24,
        tie_word_embeddings=True,
        rope_theta=1000000.0,
        rope_local_base_freq=10000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    ),
}


WITH_STATES = ("llama", "qwen3", "gemma3")


def build(config):
    config = {k: v for k, v in config.items()}
    parsed = AutoConfig.for_model(**config)
    parsed._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(parsed).float().eval()
    plus_one = config["model_type"].startswith("gemma")
    shapes = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shapes[name] = list(parameter.shape)
            parameter.copy_(torch.from_numpy(weight(name, shapes[name], plus_one)))
    return model, shapes


def main():
    for name, config in CONFIGS.items():
        model, shapes = build(config)
        tokens = [mix(name_seed(name) + i) % config["vocab_size"] for i in range(TOKENS)]
        ids = torch.tensor([tokens])
        with torch.no_grad():
            runs = [model(ids, use_cache=False).logits[0]]
            if name == "llama_dynamic":
                cache, steps = None, []
                model, _ = build(config)
                for i in range(TOKENS):
                    out = model(ids[:, i : i + 1], past_key_values=cache, use_cache=True)
                    cache = out.past_key_values
                    steps.append(out.logits[0, 0])
                runs.append(torch.stack(steps))
        torch.cat(runs).numpy().astype("<f4").tofile(OUT / f"{name}.f32")
        if name in WITH_STATES:
            with torch.no_grad():
                states = model.model(ids, use_cache=False).last_hidden_state[0]
            states.numpy().astype("<f4").tofile(OUT / f"{name}.states")
        golden = {
            "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "config": config,
            "tensors": shapes,
            "tokens": tokens,
        }
        (OUT / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")
        print(name, runs[0].abs().max().item(), runs[0].std().item())


if __name__ == "__main__":
    main()
