"""The words that the small tokenizers of the tests know, and random sentences of these words."""

WORDS = (
    "the a of and to in is was for on that with as it at by from this be are red green blue small large old new "
    "house river mountain city school garden window table letter music night morning winter summer king queen doctor "
    "teacher child walked opened found wrote carried followed heard watched built crossed returned remembered"
).split()


def sentence(generator, length: int = 8) -> str:
    return " ".join(WORDS[i] for i in generator.integers(0, len(WORDS), length)) + " ."
