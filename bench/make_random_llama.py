#!/usr/bin/env python3
"""Writes a llama-shaped GGUF of about a billion parameters with random 4-bit weights, for speed comparisons only.

  bench/make_random_llama.py TOKENIZER.gguf OUT.gguf [--type Q4_0|Q4_K|BF16]

The tokenizer (a vocabulary of at most --vocab tokens) is taken from a GGUF that has one. Needs numpy and gguf (PyPI).
Blocks are random bytes with sane scales, so that logits stay finite; every layer has its own.
"""
import argparse

import gguf
import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, INNER = 2048, 16, 32, 8, 8192


def random_blocks(rng, kind, rows, columns):
    """Bytes of a [rows, columns] tensor of the type, its weights about 0.02 in size."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.BF16:
        values = (rng.standard_normal((rows, columns), dtype=np.float32) * 0.02).view(np.uint32)
        return (values >> 16).astype(np.uint16).view(np.uint8)
    scale = np.frombuffer(np.float16(0.003 if kind == gguf.GGMLQuantizationType.Q4_0 else 0.0001).tobytes(), np.uint8)
    data[..., :2] = scale
    if kind == gguf.GGMLQuantizationType.Q4_K:
        data[..., 2:4] = np.frombuffer(np.float16(0.0008).tobytes(), np.uint8)
    return data.reshape(rows, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--type", default="Q4_0", choices=["Q4_0", "Q4_K", "BF16"])
    args = parser.parse_args()
    kind = gguf.GGMLQuantizationType[args.type]
    rng = np.random.default_rng(1)
    reader = gguf.GGUFReader(args.tokenizer)
    writer = gguf.GGUFWriter(args.out, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kinds = field.types
            sub = kinds[1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kinds[0], sub_type=sub)
    vocab = len(reader.fields["tokenizer.ggml.tokens"].data)

    def add(name, rows, columns):
        writer.add_tensor(name, random_blocks(rng, kind, rows, columns), raw_dtype=kind)

    def norm(name):
        writer.add_tensor(name, np.ones(HIDDEN, np.float32))

    add("token_embd.weight", vocab, HIDDEN)
    norm("output_norm.weight")
    kv = HIDDEN // HEADS * KV_HEADS
    for i in range(LAYERS):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        for name, rows, columns in [("attn_q", HIDDEN, HIDDEN), ("attn_k", kv, HIDDEN), ("attn_v", kv, HIDDEN),
                                    ("attn_output", HIDDEN, HIDDEN), ("ffn_gate", INNER, HIDDEN),
                                    ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)]:
            add(f"blk.{i}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
