"""Writes the seeds in corpus/: small sound files for the fuzzers to start from.

Usage: python make_corpus.py
"""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent / "corpus"


def put(target, name, data):
    folder = HERE / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


def u32(key, value):
    return text(key) + struct.pack("<II", 4, value)


def f32(key, value):
    return text(key) + struct.pack("<If", 6, value)


def string(key, value):
    return text(key) + struct.pack("<I", 8) + text(value)


def strings(key, values):
    return text(key) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(key, kind, code, values):
    return text(key) + struct.pack(f"<IIQ{len(values)}{code}", 9, kind, len(values), *values)


def gguf(keys, tensors, version=3):
    infos, data = b"", b""
    for name, dims, kind, content in tensors:
        data += b"\0" * (-len(data) % 32)
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += content
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + b"\0" * (-len(head) % 32) + data


def architecture(name, heads=2):
    return [
        string("general.architecture", name),
        u32(f"{name}.block_count", 1),
        u32(f"{name}.context_length", 16),
        u32(f"{name}.embedding_length", 8),
        u32(f"{name}.feed_forward_length", 8),
        u32(f"{name}.attention.head_count", heads),
        f32(f"{name}.attention.layer_norm_rms_epsilon", 1e-5),
    ]


def tokenizer(kind, tokens):
    return [
        string("tokenizer.ggml.model", kind),
        strings("tokenizer.ggml.tokens", tokens),
        numbers("tokenizer.ggml.scores", 6, "f", [0.0] * len(tokens)),
        numbers("tokenizer.ggml.token_type", 5, "i", [3, 1] + [1] * (len(tokens) - 2)),
        u32("tokenizer.ggml.eos_token_id", 1),
    ]


SIZES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
         10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
         16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
         21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
         27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66),
         39: (32, 17)}

put("gguf", "empty", gguf([], []))
put("gguf", "every_type", gguf(
    [], [(f"t{kind}", [block, 1], kind, bytes(range(256))[:size]) for kind, (block, size) in SIZES.items()]))
put("gguf", "llama", gguf(
    architecture("llama") + tokenizer("llama", ["<s>", "</s>", "a", "b"]),
    [("token_embd.weight", [8, 4], 0, b"\0" * 128),
     ("blk.0.attn_q.weight", [8, 8], 0, b"\0" * 256),
     ("blk.0.attn_k.bias", [8], 0, b"\0" * 32),
     ("rope_freqs.weight", [2], 0, struct.pack("<ff", 1, 8))]))
put("gguf", "gemma3", gguf(
    architecture("gemma3") + [
        u32("gemma3.attention.sliding_window", 4),
        numbers("gemma3.attention.sliding_window_pattern", 7, "B", [1]),
        string("gemma3.rope.scaling.type", "linear"),
        f32("gemma3.rope.scaling.factor", 8.0)],
    [("token_embd.weight", [8, 4], 1, b"\0" * 64), ("output_norm.weight", [8], 0, b"\0" * 32)]))
put("gguf", "qwen3", gguf(
    architecture("qwen3") + tokenizer("gpt2", ["a", "b", "ab"]) + [
        string("tokenizer.ggml.pre", "qwen2"),
        strings("tokenizer.ggml.merges", ["a b"]),
        string("qwen3.rope.scaling.type", "yarn"),
        f32("qwen3.rope.scaling.factor", 4.0),
        u32("qwen3.rope.scaling.original_context_length", 8)],
    [("token_embd.weight", [32, 3], 2, b"\0" * 54)], version=2))


def safetensors(header, data):
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


put("safetensors", "empty", safetensors({}, b""))
put("safetensors", "two", safetensors(
    {"__metadata__": {"format": "pt"},
     "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
     "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}, b"\1" * 22))
at, header = 0, {}
for dtype, size in [("F64", 8), ("I64", 8), ("U64", 8), ("I32", 4), ("U32", 4), ("F16", 2), ("I16", 2),
                    ("U16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1), ("I8", 1), ("U8", 1), ("BOOL", 1)]:
    header[dtype] = {"dtype": dtype, "shape": [1, 1], "data_offsets": [at, at + size]}
    at += size
put("safetensors", "every_type", safetensors(header, b"\2" * at))


# Prompt caches: tensors as (name, type, shape, bytes), metadata flattened.
def tensors(metadata, entries):
    header, data = {"__metadata__": metadata}, b""
    for name, kind, shape, content in entries:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return safetensors(header, data)


def rows(layer, count, size=2, kind="F16"):
    return [(f"{layer}.{i}", kind, [1, 2, count, 4], bytes(range(8 * count)) * size) for i in range(2)]


def numbers_of(layer, first, values):
    return [(f"{layer}.{first + i}", "I32", [], struct.pack("<i", v)) for i, v in enumerate(values)]


plain = {"0.model": "m", "1.0": "KVCache", "2.0": "", "2.1.0": "0.2", "2.1.1": "scalar"}
put("prompt_cache", "plain", tensors(plain, rows(0, 3) + numbers_of(0, 2, [3])))
put("prompt_cache", "ours", tensors(
    {**plain, "0.quince_model": "0123", "0.quince_tokens": "[1, 2, 3]", "0.quince_sum": "0" * 16},
    rows(0, 3) + numbers_of(0, 2, [3])))
put("prompt_cache", "ring", tensors(
    {"1.0": "RotatingKVCache", "2.0": ""}, rows(0, 6) + numbers_of(0, 2, [9, 1, 6, 3])))
put("prompt_cache", "coded", tensors(
    {"1.0": "QuantizedKVCache", "2.0": ""},
    [(f"0.{i}.0", "U32", [1, 1, 2, 8], bytes(range(64))) for i in range(2)]
    + [(f"0.{i}.{k}", "F16", [1, 1, 2, 1], b"\1\2\3\4") for i in range(2) for k in (1, 2)]
    + numbers_of(0, 2, [2, 32, 8])))
put("prompt_cache", "older", tensors(
    {"0.0.0": "1", "0.0.1": "6", "0.0.2": "9", "0.0.3": "6", "1.model": "m", "2.0": "RotatingKVCache"}, rows(0, 6)))

put("index", "two", json.dumps({
    "metadata": {"total_size": 10},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "sub/model.safetensors"}}))
put("index", "outside", '{"weight_map": {"a": "../x.safetensors", "b": "..\\\\x.safetensors"}}')

put("config", "llama", json.dumps({
    "model_type": "llama", "eos_token_id": [1, 2], "bos_token": {"content": "<s>"},
    "quantization": {"group_size": 64, "bits": 4, "model.x": {"bits": 8}, "model.y": False}}))
put("config", "gemma3", json.dumps({
    "model_type": "gemma3", "eos_token_id": 1, "quantization_config": {"group_size": 64, "bits": 4},
    "text_config": {"hidden_size": 8}}))
put("config", "templates", json.dumps({
    "model_type": "x", "chat_template": [{"name": "default", "template": "a"}]}))
put("config", "tokenizer", json.dumps({
    "added_tokens": [{"id": 1, "content": "<s>"}],
    "post_processor": {"single": [{"SpecialToken": {"id": "<s>"}}]},
    "model": {"vocab": {"a": 0}}}))
put("config", "odd_processor", json.dumps({"post_processor": {"SpecialToken": {"id": "<s>"}}}))
put("config", "unigram", json.dumps({"model": {"vocab": [["a", 0.5], ["</s>", 1]]}}))
put("config", "listing", json.dumps({
    "sha": "0123", "siblings": [{"rfilename": "a.json", "size": 3, "blobId": "0" * 40},
                                {"rfilename": "b", "lfs": {"sha256": "0" * 64}}]}))

WALK = b"\0" + bytes(range(1, 40))
for name, kind, text in [
    ("schema", 0, '{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":{"enum":[1,"y",null]}},'
                  '"$defs":{"x":{"type":"string","pattern":"^a[^\\"]{0,3}$","maxLength":4}},"required":["a"]}'),
    ("schema_list", 0, '{"type":"array","prefixItems":[{"type":"integer","minimum":3,"maximum":12}],'
                       '"items":{"anyOf":[{"type":"number","multipleOf":0.5},{"const":{"k":[1]}}]},"maxItems":3}'),
    ("schema_tree", 0, '{"oneOf":[{"type":"null"},{"type":"object","properties":{"n":{"$ref":"#"}},'
                       '"patternProperties":{"^x":{"format":"date"}},"additionalProperties":false}]}'),
    ("object", 1, ""),
    ("regex", 2, "^(ab|[0-9]{2,3})+\\w?(?i:x)$"),
    ("choice", 3, '["yes","no","ab\\u00e4"]'),
    ("lark", 4, 'start: a "," B+ | %json {"type":"integer"}\na: /[a-c]/ "x"i?\nB: "1".."9" & /[0-5]/\n%ignore /[ ]/\n'),
    ("gbnf", 5, 'root ::= list | "\\x41" [^a-c\\n]{1,3} # c\nlist ::= "[" (root ("," root)*)? "]"\n'),
]:
    put("grammar", name, bytes([kind]) + text.encode() + WALK)

for name, piece, text in [
    ("two", 0, "GET /a%20b?a=%41+b&c HTTP/1.1\r\nHost: h\r\n\r\nHEAD / HTTP/1.0\r\n\r\n"),
    ("body", 7, "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nabcde"),
    ("chunks", 1, "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;e=1\r\nabc\r\n0\r\nT: 1\r\n\r\n"),
    ("both", 0, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("absolute", 0, "GET http://u@h:1/no?x#y HTTP/1.1\r\nHost: h\r\nConnection: close\r\n folded\r\n\r\n"),
    ("tls", 0, "\x16\x03\x01\x02\0\x01\0\x01\xfc"),
]:
    put("http", name, bytes([piece]) + text.encode("latin1"))

for name, kind, text in [
    ("config", 0, '[gateway]\ndeadline = 9.5\n[keys.a]\nhash = "sha256:' + "0" * 64 + '"\nmodels = ["m"]\n'
                  '[upstreams.u]\nurl = "https://h:1/v1"\nkey = "k"\n[models.m]\nupstreams = ["u"]\naliases = ["n"]\n'),
    ("request", 1, '{"a":[{"model":1}],"model":"m\\u0041","stream":true}'),
    ("events", 2, 'event: x\ndata: {"sequence_number":3,"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
                  ': note\r\n\r\ndata: [DONE]\n\n'),
    ("response", 3, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc"),
    ("chunked", 3, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
    ("continued", 3, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
]:
    put("gateway", name, bytes([kind + 4 * 4]) + text.encode())
