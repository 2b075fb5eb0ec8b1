"""Writes blocks.safetensors: random blocks of every GGML block type and what the gguf package
(0.19.0, gguf.quants.dequantize) makes of them: tensors NAME.bytes (u8) and NAME.values (f32).

Usage: python make_blocks.py
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from safetensors.numpy import save_file

# Byte offsets of binary16 numbers inside a block: random bits there could be infinite.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "TQ1_0": [52], "TQ2_0": [64], "MXFP4": [],
    "IQ1_S": [0], "IQ1_M": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
    "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0],
}

rng = np.random.default_rng(20260101)
out = {}
for name, halves in HALVES.items():
    kind = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[kind]
    count = 6 if block == 256 else 16
    data = rng.integers(0, 256, size=(count, size), dtype=np.uint8)
    for at in halves:
        scale = (rng.standard_normal(count) * 0.05).astype(np.float16)
        scale[0] = np.float16(6e-8)  # a subnormal one
        data[:, at : at + 2] = scale.view(np.uint8).reshape(count, 2)
    if name == "IQ1_M":  # the scale's bits are the top nibbles of four words; keep its exponent small
        data[:, 55] &= 0xBF
    if name == "MXFP4":
        data[:4, 0] = [0, 1, 2, 127]
        data[4:, 0] = rng.integers(100, 150, size=count - 4)
    values = quants.dequantize(data, kind).astype(np.float32)
    assert np.isfinite(values).all(), name
    out[f"{name}.bytes"] = data.reshape(-1)
    out[f"{name}.values"] = values.reshape(-1)
save_file(out, "blocks.safetensors")
