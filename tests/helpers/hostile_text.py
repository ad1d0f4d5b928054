"""Random texts of characters that have broken tokenizers."""

import random

# One pool for each way in which text has broken tokenizers.
HOSTILE = [
    "abcXYZ",
    "áéñçÅßẞİıΣσςΌδός",
    "\u0300\u0301\u0345\u0327\u05b0\u064b\u0e31\u3099\u20dd\u1ab0\ufe0f\u1dc0\u0334",
    "中文漢字\u3400\U00020000\U0002a700\U0002b820\U0002b920\U0002f800\uf900",
    "한국어\u1100\u1161\u11a8\uac01",
    "ひらカナ\u30fc\uff71\uff9e",
    "👨\u200d👩\u200d👧🏽🇩🇪\u20e3",
    "\x00\ufffd\x01\x1c\x1f\x7f\x85\xad\u200b\u200e\u2028\u2029\u202e\ufeff\ue000\U0010fffd\u0378\U000e0001\ufffe",
    "  \t\n\r\u00a0\u1680\u2003\u3000\u205f",
    "!'\"-_.,$^`~¡«»“”…‽、。\u061d\u2e5d\u166d",
    "٣१๓Ⅷ½²",
    "\u037e\u1fef\u212a\u212b\u2126\u0344\u0958\ufb1f\U0001d160\U00011938\U000105c9",
]


def hostile_texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)

    def word() -> str:
        kind = rng.random()
        if kind < 0.03:
            return rng.choice("aé中\u0301") * rng.randint(99, 202)
        if kind < 0.12:
            return rng.choice(["[MASK]", "[CLS]", "[UNK]", "[mask]", "[[SEP]]"])
        if kind < 0.2:
            code = rng.randrange(0x110000 - 0x800)
            return chr(code if code < 0xD800 else code + 0x800)
        pools = (rng.choice(HOSTILE) if rng.random() < 0.4 else HOSTILE[0] for _ in range(rng.randint(1, 8)))
        return "".join(map(rng.choice, pools))

    return ["".join(word() + rng.choice(["", " "]) for _ in range(rng.randint(1, 12))) for _ in range(count)]
