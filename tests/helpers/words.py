"""The words of the small tokenizers and texts of these tests, and sentences of them."""

WORDS = (
    "the a of and to in is was for on that with as it at by from this be are red green blue small large old new "
    "house river mountain city school garden window table letter music night morning winter summer king queen doctor "
    "teacher child walked opened found wrote carried followed heard watched built crossed returned remembered"
).split()


def sentence(generator, length: int = 8) -> str:
    return " ".join(WORDS[i] for i in generator.integers(0, len(WORDS), length)) + " ."
