"""GGUF files of tiny models from make_models.py, written with the gguf package, and their logits.

NAME.gguf with plain f32 has the logits of NAME.f32. The quantized ones come with NAME-TYPE.f32: the
logits of transformers over the numbers that the gguf package decodes from the file.

  python make_gguf.py      needs torch, transformers, gguf, numpy
"""

import json
import pathlib

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import make_models as tiny

HERE = pathlib.Path(__file__).parent
Q = gguf.GGMLQuantizationType
FILES = [
    ("llama", Q.F32),
    ("llama3", Q.F32),
    ("llama_bias", Q.F16),
    ("qwen2", Q.F32),
    ("qwen3", Q.F32),
    ("gemma3", Q.F32),
    ("llama", Q.Q4_0),
    ("llama", Q.Q5_1),
    ("qwen3", Q.Q8_0),
    ("gemma3", Q.Q4_1),
    ("gemma3", Q.BF16),
]
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
MODELS = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "gemma3": gguf.MODEL_ARCH.GEMMA3}


def permute(w, heads):
    """The order in which llama's converter stores rotated rows: pairs beside each other."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama3_factors(config):
    scaling = config["rope_scaling"]
    dims = config["head_dim"]
    freqs = config["rope_theta"] ** -(np.arange(0, dims, 2) / dims)
    wavelength = 2 * np.pi / freqs
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((context / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def write_metadata(out, config, arch):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_rope_dimension_count(head_dim)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_rope_freq_base(config.get("rope_theta", 10000.0))
    out.add_vocab_size(config["vocab_size"])
    if arch == "gemma3":
        out.add_sliding_window(config["sliding_window"])
        pattern = [(i + 1) % config["sliding_window_pattern"] != 0 for i in range(config["num_hidden_layers"])]
        out.add_array("gemma3.attention.sliding_window_pattern", pattern)
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(config["rope_scaling"]["factor"])
    # Characters of byte-level BPE, one a token, and one merge (a list may not be empty).
    alphabet = [c for c in range(0x21, 0x7F)] + [c for c in range(0xA1, 0xC3)]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list([chr(c) for c in alphabet][: config["vocab_size"] - 1] + ['!"'])
    out.add_token_types([1] * config["vocab_size"])
    out.add_token_merges(['! "'])
    out.add_eos_token_id(0)


def main():
    for name, qtype in FILES:
        config = json.loads((HERE / f"{name}.json").read_text())["config"]
        if name == "gemma3":
            config = {**config, "query_pre_attn_scalar": config["head_dim"]}  # GGUF has no key for it
        arch = ARCHITECTURES[config["model_type"]]
        model, shapes = tiny.build(config)
        stem = name if qtype == Q.F32 else f"{name}-{qtype.name}"
        out = gguf.GGUFWriter(HERE / f"{stem}.gguf", arch)
        write_metadata(out, config, arch)
        names = gguf.get_tensor_name_map(MODELS[arch], config["num_hidden_layers"])
        heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
        parameters = dict(model.named_parameters())
        for tensor, shape in shapes.items():
            values = tiny.weight(tensor, shape, arch == "gemma3")
            turned = next((n for part, n in heads.items() if part in tensor and arch == "llama"), None)
            stored = permute(values, turned) if turned else values
            if arch == "gemma3" and tensor.endswith("norm.weight"):
                stored = stored + np.float32(1)
            this = qtype if len(shape) == 2 and shape[-1] % 32 == 0 else Q.F32
            data = gguf.quants.quantize(np.ascontiguousarray(stored), this)
            out.add_tensor(names.get_name(tensor, (".weight", ".bias")), data, raw_dtype=this)
            back = gguf.quants.dequantize(data, this).reshape(stored.shape)
            if arch == "gemma3" and tensor.endswith("norm.weight"):
                back = back - np.float32(1)
            back = unpermute(back, turned) if turned else back
            with torch.no_grad():
                parameters[tensor].copy_(torch.from_numpy(np.ascontiguousarray(back)))
        if name == "llama3":
            out.add_tensor("rope_freqs.weight", llama3_factors(config))
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        tokens = json.loads((HERE / f"{name}.json").read_text())["tokens"]
        with torch.no_grad():
            if name == "gemma3" and qtype != Q.F32:  # made from a bf16 model, whose factor is bf16
                scale = model.model.embed_tokens.embed_scale
                scale.copy_(scale.to(torch.bfloat16).float())
            logits = model(torch.tensor([tokens]), use_cache=False).logits[0]
        logits.numpy().astype("<f4").tofile(HERE / f"{stem}.gguf.f32")
        print(stem, (HERE / f"{stem}.gguf").stat().st_size)


if __name__ == "__main__":
    main()
