// The text of golden/mixed_text.py: the same bytes for the same seed.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace quince::test {

struct CodeBlock {
  uint32_t first;
  uint32_t last;
};

inline constexpr CodeBlock kBlocks[] = {
    {0x20, 0x7E},       {0x61, 0x7A},       {0x41, 0x5A},       {0xA0, 0xFF},
    {0x100, 0x17F},     {0x180, 0x24F},     {0x250, 0x2AF},     {0x300, 0x36F},
    {0x370, 0x3FF},     {0x400, 0x4FF},     {0x531, 0x58F},     {0x5B0, 0x5F4},
    {0x600, 0x6FF},     {0x700, 0x74F},     {0x780, 0x7BF},     {0x900, 0x97F},
    {0x980, 0x9FF},     {0xA00, 0xA7F},     {0xA80, 0xAFF},     {0xB00, 0xB7F},
    {0xB80, 0xBFF},     {0xC00, 0xC7F},     {0xC80, 0xCFF},     {0xD00, 0xD7F},
    {0xD80, 0xDFF},     {0xE00, 0xE7F},     {0xE80, 0xEFF},     {0xF00, 0xFFF},
    {0x1000, 0x109F},   {0x10A0, 0x10FF},   {0x1100, 0x11FF},   {0x1200, 0x137F},
    {0x13A0, 0x13FF},   {0x1780, 0x17FF},   {0x1800, 0x18AF},   {0x1E00, 0x1EFF},
    {0x1F00, 0x1FFF},   {0x2000, 0x206F},   {0x2070, 0x209F},   {0x20A0, 0x20CF},
    {0x2100, 0x214F},   {0x2150, 0x218F},   {0x2190, 0x21FF},   {0x2200, 0x22FF},
    {0x2300, 0x23FF},   {0x2460, 0x24FF},   {0x2500, 0x257F},   {0x25A0, 0x25FF},
    {0x2600, 0x26FF},   {0x2700, 0x27BF},   {0x2E80, 0x2EFF},   {0x3000, 0x303F},
    {0x3040, 0x309F},   {0x30A0, 0x30FF},   {0x3100, 0x312F},   {0x3400, 0x34FF},
    {0x4E00, 0x9FFF},   {0x4E00, 0x51FF},   {0xA000, 0xA0FF},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFB00, 0xFB4F},   {0xFE30, 0xFE4F},   {0xFF00, 0xFFEF},
    {0x10300, 0x1032F}, {0x10400, 0x1044F}, {0x1D400, 0x1D4FF}, {0x1F300, 0x1F5FF},
    {0x1F600, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x200FF},
    {0x1, 0x1F},        {0x7F, 0x9F},       {0xE000, 0xE0FF},   {0xFFF0, 0xFFFD},
};

inline constexpr std::string_view kWords[] = {
    "the",
    "of",
    "and",
    "Hello",
    "world",
    "I'm",
    "don't",
    "WE'LL",
    "it's",
    "they've",
    "'tis",
    "rock'n'roll",
    "na\303\257ve",
    "r\303\251sum\303\251",
    "Stra\303\237e",
    "\303\211COLE",
    "se\303\261or",
    "fjord",
    "\305\202\303\263d\305\272",
    "\320\237\321\200\320\270\320\262\320\265\321\202",
    "\320\274\320\270\321\200",
    "\321\207\321\202\320\276",
    "\321\215\321\202\320\276",
    "\316\225\316\273\316\273\316\254\316\264\316\261",
    "\316\272\316\261\316\273\316\267\316\274\316\255\317\201\316\261",
    "\327\251\327\234\327\225\327\235",
    "\327\242\327\225\327\234\327\235",
    "\331\205\330\261\330\255\330\250\330\247",
    "\330\250\330\247\331\204\330\271\330\247\331\204\331\205",
    "\340\244\250\340\244\256\340\244\270\340\245\215\340\244\244\340\245\207",
    "\340\244\246\340\245\201\340\244\250\340\244\277\340\244\257\340\244\276",
    "\340\270\252\340\270\247\340\270\261\340\270\252\340\270\224\340\270\265",
    "\343\201\223\343\202\223\343\201\253\343\201\241\343\201\257",
    "\344\270\226\347\225\214",
    "\346\227\245\346\234\254\350\252\236",
    "\344\275\240\345\245\275",
    "\344\270\255\346\226\207\345\255\227\347\254\246",
    "\354\225\210\353\205\225\355\225\230\354\204\270\354\232\224",
    "\354\204\270\352\263\204",
    "\342\265\234\342\264\260\342\265\216\342\264\260\342\265\243\342\265\211\342\265\226\342\265"
    "\234",
    "HTTPServer",
    "getElementById",
    "snake_case_name",
    "3.14159",
    "1e-9",
    "0xDEADBEEF",
    "1,234,567",
    "2024-07-04T12:05:09Z",
    "\302\275",
    "x\302\262",
    "\342\204\2265",
    "\342\202\254100",
    "50%",
    "https://example.com/a\?b=c&d=%20#e",
    "user@example.org",
    "C++20",
    "#include",
    "<|im_start|>",
    "<s>",
    "</s>",
    "<bos>",
    "[INST]",
    "<unused7>",
    "<0x41>",
    "\342\226\201",
    "\342\226\201the",
    "\304\240the",
    "&amp;",
    "$x^2$",
    "\\frac{1}{2}",
    "---",
    "***",
    "...",
    "!!!",
    "\?!",
    "\302\253\302\273",
    "\342\200\234quoted\342\200\235",
    "\342\200\224",
    "\342\200\246",
    "\360\237\221\215",
    "\360\237\221\251\342\200\215\360\237\221\251\342\200\215\360\237\221\247\342\200\215\360\237"
    "\221\246",
    "\360\237\207\272\360\237\207\263",
    "\342\235\244\357\270\217",
    "\360\237\217\263\357\270\217\342\200\215\360\237\214\210",
    "e\314\201",
    "\342\200\213",
    "\357\273\277",
};

inline constexpr std::string_view kCode[] = {
    "def f(x):\012    return x ** 2  # square\012",
    "for (int i = 0; i < n; ++i) {\012\011sum += a[i];\012}\012",
    "SELECT * FROM t WHERE id = 42;\012",
    "<div class=\"a\">text</div>\012",
    "{\"key\": [1, 2.5, null, true]}\012",
    "if err != nil {\012\011\011return err\012\011}\012",
    "\\begin{align}\012  a &= b \\\\\012\\end{align}\012",
    "| a | b |\012|---|---|\012",
    "#!/bin/sh\012set -eu\012",
    "let mut v: Vec<u8> = vec![0; 16];\012",
    "    \012\012\012",
    "\015\012\015\012",
    "\011\011\011",
    "          ",
    "print('%s' % x)\012",
    "```python\012x = 1\012```\012",
    "0000000000",
    "AAAAAAAAAAAAAAAA",
    "================\012",
};

inline constexpr std::string_view kSpaces[] = {
    " ",
    " ",
    " ",
    " ",
    "  ",
    "\012",
    "\012\012",
    "\011",
    "   ",
    " \012",
    "\302\240",
    "\343\200\200",
    "\015\012",
    "",
};

inline void put_code_point(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

inline std::string mixed_text(size_t size, uint64_t seed = 20260704) {
  uint64_t state = seed;
  const auto draw = [&](size_t count) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % count;
  };
  std::string out;
  while (out.size() < size) {
    const size_t kind = draw(10);
    if (kind < 5) {
      out += kWords[draw(std::size(kWords))];
    } else if (kind < 8) {
      const CodeBlock block = kBlocks[draw(std::size(kBlocks))];
      const size_t count = 1 + draw(9);
      for (size_t i = 0; i < count; ++i) {
        put_code_point(
            out, block.first + static_cast<uint32_t>(draw(block.last - block.first + 1)));
      }
    } else if (kind < 9) {
      out += kCode[draw(std::size(kCode))];
    } else {
      const size_t count = 1 + draw(12);
      for (size_t i = 0; i < count; ++i) {
        out.push_back(static_cast<char>('0' + draw(10)));
      }
    }
    out += kSpaces[draw(std::size(kSpaces))];
  }
  return out;
}

}  // namespace quince::test
