"""Characters whose Unicode properties differ between the ``tokenizers`` library and Python's unicodedata.

Google's rules use Unicode categories, so their results depend on the version of Unicode. The library has the tables of
Unicode 8 (2015) for categories and decompositions, and of Unicode 17 for letter case. With the tables of this file, the
reference gives the same pieces as the library for every code point, on any Python. The tests compare all of Unicode, so
they notice a change in the library or in Python.
"""

# Characters that are younger than the library's tables. The library treats them as letters without a decomposition.
# The ranges cover the marks, signs and format characters for which that matters. Other characters between
# them do no harm: Google's rules treat them like letters in any case.
# fmt: off
YOUNGER = frozenset(
    chr(code)
    for first, last in (
        (0x5C8, 0x5C9), (0x61D, 0x61D), (0x7FD, 0x7FD), (0x890, 0x8E2), (0x9FD, 0x9FE), (0xA76, 0xA76),
        (0xAFA, 0xAFF), (0xB53, 0xB55), (0xC04, 0xC3C), (0xC77, 0xC77), (0xC84, 0xC84), (0xD00, 0xD00),
        (0xD3B, 0xD3C), (0xD81, 0xD81), (0xEBA, 0xEBA), (0xECE, 0xECE), (0x1715, 0x1715), (0x180F, 0x1886),
        (0x1ABF, 0x1AF0), (0x1B4E, 0x1B4F), (0x1B7D, 0x1B7F), (0x1DF6, 0x1DFB), (0x2E43, 0x2E63),
        (0xA82C, 0xA82C), (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF), (0xA9BD, 0xA9BD), (0x105C9, 0x105E4),
        (0x10D24, 0x10F89), (0x11070, 0x11074), (0x110C2, 0x110CD), (0x111CF, 0x111CF), (0x1123E, 0x11241),
        (0x1133B, 0x1133B), (0x11383, 0x1145E), (0x11660, 0x1166C), (0x116B9, 0x116B9), (0x1182F, 0x11FFF),
        (0x12FF1, 0x1612F), (0x16D68, 0x16F4F), (0x16FE2, 0x16FF1), (0x1CF00, 0x1D128), (0x1D25B, 0x1D25C),
        (0x1E000, 0x1E6F5), (0x1E944, 0x1E95F),
    )
    for code in range(first, last + 1)
)
# fmt: on

# Categories in Unicode 8 that have changed since.
CHANGED = {"\u166d": "Po", "\u1734": "Mn", "\U000111c9": "Po", "\U0001171e": "Mn"}

# Capital letters that Python 3.11 (Unicode 14) does not know.
# fmt: off
LOWER = {
    chr(capital + offset): chr(small + offset)
    for capital, small, count in (
        (0x1C89, 0x1C8A, 1), (0xA7CB, 0x264, 1), (0xA7CC, 0xA7CD, 1), (0xA7CE, 0xA7CF, 1), (0xA7D2, 0xA7D3, 1),
        (0xA7D4, 0xA7D5, 1), (0xA7DA, 0xA7DB, 1), (0xA7DC, 0x19B, 1), (0x10D50, 0x10D70, 22),
        (0x16EA0, 0x16EBB, 25),
    )
    for offset in range(count)
}
# fmt: on

# CJK ideographs, each of which is a word by itself; Hangul and kana are not included. In Google's code, the sixth range
# begins at 0x2B820.
CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
