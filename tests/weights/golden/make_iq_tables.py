"""Writes src/weights/ggml_iq_tables.cpp: the code books of GGML's IQ formats.

They are constants of the format, read from the gguf package (0.19.0) and packed our way: one 16-bit
word an entry, element 0 in the lowest bits; 2 bits an element (8 elements) for IQ1 and IQ2, 3 bits an
element (4 elements) for IQ3.

Usage: python make_iq_tables.py > ../../../src/weights/ggml_iq_tables.cpp
"""

from gguf import quants

TABLES = [
    ("kIq2XxsBook", quants.IQ2_XXS, 2),
    ("kIq2XsBook", quants.IQ2_XS, 2),
    ("kIq2SBook", quants.IQ2_S, 2),
    ("kIq3XxsBook", quants.IQ3_XXS, 3),
    ("kIq3SBook", quants.IQ3_S, 3),
    ("kIq1Book", quants.IQ1_S, 2),
]

print("// Made by tests/weights/golden/make_iq_tables.py; see ggml_iq_tables.h.")
print('#include "weights/ggml_iq_tables.h"\n')
print("// clang-format off")
print("namespace quince {\n")
for name, cls, bits in TABLES:
    cls.init_grid()
    levels = list(cls.grid_map)
    grid = cls.grid.reshape(cls.grid_shape)
    words = []
    for row in grid:
        word = 0
        for i, value in enumerate(row):
            word |= levels.index(value) << (bits * i)
        words.append(f"0x{word:04x}")
    print(f"const uint16_t {name}[{len(words)}] = {{")
    for i in range(0, len(words), 12):
        print("  " + ", ".join(words[i : i + 12]) + ",")
    print("};\n")
print("} // namespace quince")
