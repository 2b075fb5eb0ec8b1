"""Text of many scripts, emoji, code, numbers, white space and control characters, the same bytes for the
same seed here and in mixed_text.h."""

MASK = (1 << 64) - 1

# First and last code point; the holes of a block are left in: unassigned characters come too.
BLOCKS = [
    (0x20, 0x7E), (0x61, 0x7A), (0x41, 0x5A), (0xA0, 0xFF), (0x100, 0x17F), (0x180, 0x24F), (0x250, 0x2AF),
    (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58F), (0x5B0, 0x5F4), (0x600, 0x6FF),
    (0x700, 0x74F), (0x780, 0x7BF), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xA80, 0xAFF),
    (0xB00, 0xB7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xD80, 0xDFF),
    (0xE00, 0xE7F), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF),
    (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1E00, 0x1EFF),
    (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x214F),
    (0x2150, 0x218F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2300, 0x23FF), (0x2460, 0x24FF),
    (0x2500, 0x257F), (0x25A0, 0x25FF), (0x2600, 0x26FF), (0x2700, 0x27BF), (0x2E80, 0x2EFF),
    (0x3000, 0x303F), (0x3040, 0x309F), (0x30A0, 0x30FF), (0x3100, 0x312F), (0x3400, 0x34FF),
    (0x4E00, 0x9FFF), (0x4E00, 0x51FF), (0xA000, 0xA0FF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF),
    (0xFB00, 0xFB4F), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF), (0x10300, 0x1032F), (0x10400, 0x1044F),
    (0x1D400, 0x1D4FF), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF),
    (0x20000, 0x200FF), (0x1, 0x1F), (0x7F, 0x9F), (0xE000, 0xE0FF), (0xFFF0, 0xFFFD),
]

WORDS = [
    "the", "of", "and", "Hello", "world", "I'm", "don't", "WE'LL", "it's", "they've", "'tis", "rock'n'roll",
    "naïve", "résumé", "Straße", "ÉCOLE", "señor", "fjord", "łódź", "Привет", "мир", "что", "это", "Ελλάδα",
    "καλημέρα", "שלום", "עולם", "مرحبا", "بالعالم", "नमस्ते", "दुनिया", "สวัสดี", "こんにちは", "世界", "日本語",
    "你好", "中文字符", "안녕하세요", "세계", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "HTTPServer", "getElementById", "snake_case_name",
    "3.14159", "1e-9", "0xDEADBEEF", "1,234,567", "2024-07-04T12:05:09Z", "½", "x²", "№5", "€100", "50%",
    "https://example.com/a?b=c&d=%20#e", "user@example.org", "C++20", "#include", "<|im_start|>", "<s>", "</s>",
    "<bos>", "[INST]", "<unused7>", "<0x41>", "▁", "▁the", "Ġthe", "&amp;", "$x^2$", "\\frac{1}{2}", "---",
    "***", "...", "!!!", "?!", "«»", "“quoted”", "—", "…", "👍", "👩‍👩‍👧‍👦", "🇺🇳", "❤️", "🏳️‍🌈", "e\u0301", "\u200b", "\ufeff",
]

CODE = [
    "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT * FROM t WHERE id = 42;\n", "<div class=\"a\">text</div>\n", "{\"key\": [1, 2.5, null, true]}\n",
    "if err != nil {\n\t\treturn err\n\t}\n", "\\begin{align}\n  a &= b \\\\\n\\end{align}\n", "| a | b |\n|---|---|\n",
    "#!/bin/sh\nset -eu\n", "let mut v: Vec<u8> = vec![0; 16];\n", "    \n\n\n", "\r\n\r\n", "\t\t\t", "          ",
    "print('%s' % x)\n", "```python\nx = 1\n```\n", "0000000000", "AAAAAAAAAAAAAAAA", "================\n",
]

SPACES = [" ", " ", " ", " ", "  ", "\n", "\n\n", "\t", "   ", " \n", "\u00a0", "\u3000", "\r\n", ""]


def mixed_text(size, seed=20260704):
    state = seed

    def draw(count):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        return (state >> 33) % count

    out = []
    written = 0
    while written < size:
        kind = draw(10)
        if kind < 5:
            piece = WORDS[draw(len(WORDS))]
        elif kind < 8:
            first, last = BLOCKS[draw(len(BLOCKS))]
            piece = "".join(chr(first + draw(last - first + 1)) for _ in range(1 + draw(9)))
        elif kind < 9:
            piece = CODE[draw(len(CODE))]
        else:
            piece = "".join(chr(0x30 + draw(10)) for _ in range(1 + draw(12)))
        piece += SPACES[draw(len(SPACES))]
        out.append(piece)
        written += len(piece.encode())
    return "".join(out)
