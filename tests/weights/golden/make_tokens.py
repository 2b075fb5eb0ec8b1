"""Remakes tokens.json: what outside tokenizers make of mixed_text(1200000) with vocabularies of GGUF
files, as the number of ids and their 64-bit FNV-1a hash (each id as 4 bytes, little-endian).

    python make_tokens.py MODELS_FOLDER LLAMA_TOKENIZE

MODELS_FOLDER is what QUINCE_TEST_MODELS names. Two references: "tokenizers", the vocabulary read by
transformers from the GGUF file, with what that reading loses put back as in the model's own
tokenizer.json (single digits of SmolLM2 and StarCoder, composition of Qwen 2), special tokens as text;
and "llama.cpp" (llama-tokenize --no-parse-special). Where they differ the first is right:
  gemma-3: "</s>" is an HTML tag and a token of its own; llama.cpp takes it for an end token. Literal
    U+2581 beside spaces joins them.
  qwen2: llama.cpp does not compose characters (NFC).
"""

import array
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import tokenizers
import transformers
from mixed_text import mixed_text

HERE = pathlib.Path(__file__).parent
DIGITS = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ],
}
VOCAB = "llama.cpp-models/ggml-vocab-"
BOTH = [
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    f"{VOCAB}gpt-2.gguf",
    f"{VOCAB}llama-bpe.gguf",
    f"{VOCAB}llama-spm.gguf",
    f"{VOCAB}starcoder.gguf",
]
TOKENIZERS_ONLY = ["gemma-3-270m-q4_k_m.gguf", f"{VOCAB}qwen2.gguf"]
LLAMA_ONLY = [
    f"{VOCAB}{name}.gguf"
    for name in ["aquila", "baichuan", "deepseek-coder", "falcon", "gemma-4", "gpt-neox", "qwen35", "refact"]
]


def fingerprint(ids):
    value = 0xCBF29CE484222325
    for byte in array.array("i", ids).tobytes():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return {"count": len(ids), "hash": f"{value:016x}"}


def by_tokenizers(models, name, text):
    path = models / name
    loaded = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    spec = json.loads(loaded.backend_tokenizer.to_str())
    if "SmolLM2" in name or "starcoder" in name:
        spec["pre_tokenizer"] = DIGITS
    if "qwen2" in name:
        spec["normalizer"] = {"type": "NFC"}
    spec["truncation"] = spec["padding"] = None
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(spec))
    tokenizer.encode_special_tokens = True
    return tokenizer.encode(text, add_special_tokens=False).ids


def by_llama_cpp(models, name, text, program):
    with tempfile.NamedTemporaryFile(suffix=".txt") as file:
        file.write(text.encode())
        file.flush()
        flags = ["--ids", "--no-bos", "--no-parse-special", "--no-escape"]
        out = subprocess.run(
            [program, "-m", str(models / name), "-f", file.name, *flags], capture_output=True, text=True, check=True
        ).stdout
    return [int(number) for number in re.findall(r"\d+", out[out.index("[") :])]


def main():
    models, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    text = mixed_text(1200000)
    result = {"versions": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}}
    result["tokens"] = rows = {}
    for name in BOTH + TOKENIZERS_ONLY:
        rows[name] = {"tokenizers": fingerprint(by_tokenizers(models, name, text))}
    for name in BOTH + LLAMA_ONLY:
        rows.setdefault(name, {})["llama.cpp"] = fingerprint(by_llama_cpp(models, name, text, program))
    (HERE / "tokens.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
