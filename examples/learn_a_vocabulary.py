"""Learn a WordPiece vocabulary and use it. The text is the documentation that is part of Python.

python examples/learn_a_vocabulary.py my_tokenizer
"""

import pydoc_data.topics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the checkout is found without being installed

from transformers import AutoTokenizer

from tokenization import FullTokenizer
from tokenization.train_wordpiece import train_wordpiece

folder = sys.argv[1]
pieces = train_wordpiece(iter(pydoc_data.topics.topics.values()), vocab_size=2000, output_dir=folder)
print(f"{len(pieces)} pieces, the last ones learned: {' '.join(pieces[-5:])}")

tokenizer = AutoTokenizer.from_pretrained(folder)  # transformers opens it without this package
text = "Dictionaries preserve insertion order; unhashable keys raise TypeError."
print(tokenizer.tokenize(text))

encoded = tokenizer("What raises TypeError?", text, return_offsets_mapping=True)
print(tokenizer.decode(encoded["input_ids"]))
start, end = encoded["offset_mapping"][encoded.input_ids.index(tokenizer.sep_token_id) + 1]
print(f"the second text begins with {text[start:end]!r}")

# The reference is the same algorithm in plain Python, which is easy to read.
reference = FullTokenizer(Path(folder) / "vocab.txt")
assert reference.tokenize(text) == tokenizer.tokenize(text)
