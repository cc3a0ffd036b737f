"""Text that tokenizers stumble over, and a source of random text of the same kinds."""

from __future__ import annotations

import random
import unicodedata

SCRIPTS = [
    "The quick brown fox jumps over the lazy dog. It's what we'll say, I'd've THOUGHT you'RE sure; don'T they'Ve?",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Größe, Straße, ẞ. İstanbul ışık. Œuvre naïve, cœur.",
    "Съешь ещё этих мягких французских булок. Ωμέγα και άλφα. Հայերեն լեզու. ქართული ენა.",
    "שלום עולם! כִּי־טוֹב. مرحبا بالعالم، كيف الحال؟ ١٢٣٤ فارسی می‌نویسم. \u202bRTL\u202c \u200fmark",
    "हिन्दी में क्या हो रहा है? বাংলা ভাষা। தமிழ் மொழி ௧௨௩ తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ภาษาไทยไม่มีช่องว่าง ๑๒๓ ລາວ မြန်မာ ខ្មែរ བོད་ཡིག ᠮᠣᠩᠭᠣᠯ",
    "中文分词没有空格。繁體中文，日本語のテキスト、カタカナ・ひらがな。한국어 텍스트 조합 한글",
    "ⅫⅣ ½ ¾ ² ³ ₁ ① ㊿ 〇 一二三 𝟘𝟙𝟚 𝔸𝔹 ℝ → ∑∫ √ € £ ¥ ₿ § ¶ † ‡ … – — “quotes” ‘single’ «guillemets»",
    "𐍈 𓀀 𒀀 𝓗𝓮𝓵𝓵𝓸 𠜎𠜱 \U00010d40\U00010d4a \U000113d1 \U0001ccf0 ꟋꟜ Ᲊ",
]
EMOJI = [
    "😀😃 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☎︎ 1️⃣ #️⃣ 🧑🏿‍🚀",
    "text😀text 😀 text\u200d👩 🫠🫡🫥",
    "👨‍👩‍👧‍👦" * 5,
]
MARKS = [
    "é é " + unicodedata.normalize("NFD", "Ångström café ñ ệ ữ"),
    unicodedata.normalize("NFKC", "ﬁ ﬂ ① ｱ ﾞ") + " ﬁ ﬂ ① ｱﾞ",
    unicodedata.normalize("NFD", "한글 가각") + " 한글",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "\u0301leading mark a\u0301 \u0301 1\u0301 !\u0301",
]
CODE = [
    "def f(x):\n    if x > 0:\n        return {'a': [1, 2.50], \"b\": x**2}\n\n\treturn None  # done\n",
    "for (int i = 0; i < n; ++i) {\r\n\t\tsum += a[i] * b[i];\r\n\t}\r\n// ===---===\r\n\r\n",
    "SELECT * FROM t WHERE a != 'it''s' AND b >= 1e-5;-- x\n<div class=\"a\">&nbsp;</div>\n$PATH=~/x_y-z\\n\\t%20",
    "snake_case camelCase HTTPServer2Go __init__ a.b->c::d x+=1 0xDEADBEEF 1_000_000 v1.2.3-rc.4",
]
SPACES = [
    " ",
    "  ",
    "   a",
    "a   ",
    "a  b",
    "\n",
    "\n\n\n",
    " \n \n ",
    "\t\t",
    "a\tb\t\tc",
    "\r\n\r\n",
    "a \r\n b",
    "\r",
    "\v\f",
    "a\u00a0b \u00a0\u00a0c",
    "\u3000全角\u3000\u3000",
    "x\u2028y\u2029z",
    "\u2003em\u2009thin\u200bzero\ufeffbom",
    "\u0085nel",
    "trailing  ",
    "trailing\n",
    "trailing\t ",
    "  \u00a0 \u3000 \n x",
    "a" + " " * 50 + "b" + "\n" * 40 + " " * 33,
]
DIGITS = [
    "0",
    "12",
    "123",
    "1234",
    "12345678901234567890",
    "3.14159",
    "1,000,000",
    "a1b22c333",
    "٠١٢٣ ०१२ 12³",
    " 1 22 333 4444",
]
CONTROLS = [
    "\x00",
    "a\x00b",
    "\x01\x02\x1b[31m\x7f",
    "\x1c\x1d\x1e\x1f",
    "\x80\x9f\xad",
    "�",
    "a�b��",
    "\ufffe\uffff\U0010ffff",
    "\ue000\U000f0000",
]
LONG = ["a" * 1500, "ab" * 700, "=" * 900, "1" * 700, "é" * 500, "人" * 400, "x y " * 300, "'s" * 200, "!?" * 300]
SPECIALS = [
    "<|im_start|>user\nHi<|im_end|>\n",
    "a<|im_end|>b <|im_end|> <|im_end|><|im_end|>",
    "<|im_end|",
    "<|im_start|><|im_end|>",
    "<|<|im_end|>|>",
    " <|endoftext|> ",
    "<think>x</think>",
    "<s>x</s><unk>",
]
# What vocabularies are learnt from: all of it but the texts that hold special tokens.
PLAIN = [*SCRIPTS, *EMOJI, *MARKS, *CODE, *SPACES, *DIGITS, *CONTROLS, *LONG]
CORPUS = ["", *PLAIN, *SPECIALS]

_PARTS = [
    *"abcXYZ éßж中한あ😀'_-.,!?()[]{}<>|/\\@#$%^&*+=~`\"0123456789\t\n\r",
    *SPECIALS,
    *EMOJI[0].split(),
    " ",
    "  ",
    "\r\n",
]


def random_text(rng: random.Random) -> str:
    """Up to 40 parts: known troublemakers, or code points from all of Unicode but the surrogates."""
    return "".join(_random_part(rng) for _ in range(rng.randrange(40)))


def _random_part(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(_PARTS)
    top = 0x250 if kind < 0.75 else 0x3400 if kind < 0.9 else 0x20000
    code = rng.randrange(top)
    return chr(code) if not 0xD800 <= code < 0xE000 else "�"
