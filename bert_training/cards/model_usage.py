"""Short programs for model cards, which show how a finished model is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bert_training.inputs.flags.fine_tuning import (
    LAST_TOKEN,
    SPECIAL_TOKENS,
    GlueArguments,
    SquadArguments,
    head_of,
    stride_of,
)
from bert_training.inputs.flags.objectives import objective_of
from bert_training.inputs.flags.scripts import SCRIPTS

# An upload puts the name on the Hub into the line of model_name (bert_training/cards/publishing.py).
PIPELINE = """from transformers import pipeline
model_name = {model!r}
{variable} = pipeline("{task}", model=model_name{options})
"""
NETWORK = """from transformers import {auto}, AutoTokenizer
model_name = {model!r}
tokenizer = AutoTokenizer.from_pretrained(model_name)
model = {auto}.from_pretrained(model_name{options})
"""
FILL_MASK = """print([guess["token_str"] for guess in fill_mask({text!r})])
"""
FEATURES = """print(model(**tokenizer({text!r}, return_tensors="pt")).last_hidden_state.shape)
"""
CLASSIFY = """print(classify({text}, truncation=True, max_length={length}))  # {cut}
"""
CLASSIFY_SEVERAL = """thresholds = {thresholds}
found = classify([{text}], truncation=True, max_length={length})[0]  # {cut}
print([one["label"] for one in found if one["score"] >= thresholds[classify.model.config.label2id[one["label"]]]])
"""
CLASSIFY_AT_THE_END = """inputs = tokenizer({text}, truncation=True, max_length={length}, return_tensors="pt")
label = model(**inputs).logits[0, -1].argmax()  # the label of a text is that of its last token
print(model.config.id2label[int(label)])
"""
CLASSIFY_WINDOWS = """# As in the training, a long text is read in overlapping windows, whose logits are pooled
ids, room, step = tokenizer({text}, add_special_tokens=False)["input_ids"], {room}, {stride}
parts = [ids[start : start + room] for start in range(0, max(1, len(ids) - room + step), step)]
windows = [[tokenizer.cls_token_id, *part, tokenizer.sep_token_id] for part in parts[:{most}]]
with torch.no_grad():
    logits = model(**tokenizer.pad({{"input_ids": windows}}, return_tensors="pt")).logits.mean(0)
{result}
"""
CLASSIFY_HEAD_TAIL = """ids = tokenizer({text})["input_ids"]
if len(ids) > {length}:  # as in the training, of a long text the beginning and the end are read
    ids = ids[:{head} + 1] + ids[-{tail} - 1 :]
with torch.no_grad():
    logits = model(torch.tensor([ids])).logits{row}
{result}
"""
MARK = """print(mark("Ada Lovelace grew up in London ."))
"""
MARK_WORDS = """words = "Ada Lovelace grew up in London .".split()
inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
tags = model(**inputs).logits[0].argmax(-1)
# The tag of a word is that of its first piece
firsts = [inputs.word_ids().index(number) for number in range(len(words))]
print([(word, model.config.id2label[int(tags[first])]) for word, first in zip(words, firsts)])
"""
CHOOSE = """text = "She takes the violin out of its case."
endings = ["She begins to play.", "She begins to swim.", "The case plays her.", "It is a very long river."]
# At most the length of its training
cut = {{"truncation": True, "max_length": {length}}}
inputs = tokenizer([text] * len(endings), endings, padding=True, **cut, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: tensor[None] for name, tensor in inputs.items()}}).logits
print(endings[int(logits[0].argmax())])
"""
ANSWER = """question = {question!r}
context = {context!r}
inputs = tokenizer(question, context, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs)

# The best span of up to {longest} pieces that lies in the context
scores = outputs.start_logits[0][:, None] + outputs.end_logits[0][None, :]
inside = torch.tensor([part == 1 for part in inputs.sequence_ids(0)])
allowed = (inside[:, None] & inside).triu().tril({longest} - 1)
scores = scores.masked_fill(~allowed, -torch.inf)
start, end = divmod(int(scores.argmax()), len(scores))
{result}
"""
SPAN = 'tokenizer.decode(inputs["input_ids"][0][start : end + 1])'
SPAN_OR_NOTHING = """# [CLS] stands for "no answer"; how much better it must be was found on validation data
nothing = outputs.start_logits[0, 0] + outputs.end_logits[0, 0] - scores.max()
print("" if nothing > (getattr(model.config, "null_score_diff_threshold", None) or 0) else {span})"""


@dataclass(frozen=True)
class Example:
    """What a program is written from.

    Attributes:
        model: the folder of the model or, if it is uploaded, its name on the Hub.
        run, datasets: as in ``Card``.
        builtin: whether the training data is the built-in corpus or one of its tasks.
    """

    model: str
    run: dict[str, Any]
    datasets: list[str]
    builtin: bool

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of the run."""
        return self.run["flags"]

    @property
    def length(self) -> int:
        """The length of its training."""
        return self.flags.get("max_seq_length") or GlueArguments.max_seq_length

    @property
    def options(self) -> str:
        """What opens a class that only this project has."""
        own_class = (
            self.flags.get("feature_based")
            or self.flags.get("bilstm_on_top")
            or self.flags.get("label_token") == "bilstm"
        )
        return ", trust_remote_code=True" if own_class else ""

    def with_pipeline(self, variable: str, task: str, options: str, rest: str, **values: object) -> str:
        """The program that uses a pipeline of transformers."""
        return (PIPELINE + rest).format(model=self.model, variable=variable, task=task, options=options, **values)

    def with_network(self, auto: str, rest: str, imports: str = "", **values: object) -> str:
        """The program that calls the network, opened by one of transformers' Auto classes."""
        return imports + (NETWORK + rest).format(model=self.model, auto=auto, options=self.options, **values)


PLAIN_TAGS = "plain"  # bert_training/tasks/ner/schemes.py


def tag_scheme(run: dict[str, Any]) -> str | None:
    """The scheme of the tags in the data of a tagger, from its run.json; None if there is none."""
    data = run.get("data")
    splits = data.get("splits") if isinstance(data, dict) else None
    found = [facts.get("tag_scheme") for facts in splits.values()] if isinstance(splits, dict) else []
    return next((scheme for scheme in found if isinstance(scheme, str)), None)


def fill_mask(example: Example) -> str:
    """Guesses of a masked word, or the vectors of a model that has seen no masks."""
    text = "Return the [MASK] of the array." if example.builtin else "London is the [MASK] of England."
    if objective_of(example.flags).masks:
        return example.with_pipeline("fill_mask", "fill-mask", "", FILL_MASK, text=text)
    return example.with_network("AutoModel", FEATURES, text=text)


def classify(example: Example) -> str:
    """The class of a text or a pair."""
    flags, run, length = example.flags, example.run, example.length
    task = flags.get("task_name") or example.datasets[0]
    pair = {"text": "Return the sum of the elements.", "text_pair": "The sum is taken along the given axis."}
    single = run.get("texts_per_example") == 1
    if reads_long_texts(run):
        return classify_long(example, flags["long_texts"], repr(pair["text"]))
    if flags.get("label_token") in LAST_TOKEN:
        texts = repr(pair["text"]) if single else ", ".join(map(repr, pair.values()))
        return example.with_network("AutoModelForTokenClassification", CLASSIFY_AT_THE_END, text=texts, length=length)
    options = ', function_to_apply="none"' if task == "stsb" else ""
    cut = "the length of its training"
    if cuts_long_pairs(run):
        cut = "the beginnings of a long pair; bert-repro ask reads the ends, too"
    values = {"text": repr(pair["text"] if single else pair), "length": length, "cut": cut}
    if "thresholds" in run:  # several labels a text
        values["thresholds"] = thresholds_of(run, "classify.model")
        return example.with_pipeline("classify", "text-classification", ", top_k=None", CLASSIFY_SEVERAL, **values)
    return example.with_pipeline("classify", "text-classification", options, CLASSIFY, **values)


def thresholds_of(run: Mapping[str, Any], model: str) -> str:
    """The expression for the thresholds of the labels; ``model`` is the one for the model."""
    if run.get("thresholds") == "usual":
        return f"[0.5] * {model}.config.num_labels"
    return f'{model}.config.fine_tuning["thresholds"]  # one for each label'


def reads_long_texts(run: Mapping[str, Any]) -> bool:
    """Whether a classifier reads more of a long text than its beginning; ``run`` is the content of run.json."""
    how = run["flags"].get("long_texts")
    return how == "windows" or (how == "head_tail" and run.get("texts_per_example") == 1)


def cuts_long_pairs(run: Mapping[str, Any]) -> bool:
    """Whether the program of the card cuts long pairs, of which the training read the ends, too."""
    return run["flags"].get("long_texts") == "head_tail" and not reads_long_texts(run)


def classify_long(example: Example, how: str, text: str) -> str:
    """The class of a text that may be longer than the model reads at once."""
    flags, facts, length = example.flags, example.run["data"], example.length
    last = flags.get("label_token") in LAST_TOKEN
    auto = "AutoModelForTokenClassification" if last else "AutoModelForSequenceClassification"
    result = "print(model.config.id2label[int(logits.argmax())])"
    if facts.get("several_labels"):
        result = (
            f"thresholds = {thresholds_of(example.run, 'model')}\nshares = logits.sigmoid().flatten().tolist()\n"
            "print([name for number, name in model.config.id2label.items() if shares[number] >= thresholds[number]])"
        )
    elif facts.get("labels") is None:
        result = "print(float(logits))"
    values: dict[str, object] = {"text": text, "length": length, "result": result}
    if how == "windows":
        room = length - SPECIAL_TOKENS
        values |= {"room": room, "stride": stride_of(room), "most": flags["max_windows"]}
        return example.with_network(auto, CLASSIFY_WINDOWS, "import torch\n", **values)
    head = head_of(length - SPECIAL_TOKENS)
    values |= {"head": head, "tail": length - SPECIAL_TOKENS - head, "row": "[0, -1]" if last else "[0]"}
    return example.with_network(auto, CLASSIFY_HEAD_TAIL, "import torch\n", **values)


def mark(example: Example) -> str:
    """The names in a sentence, or the tag of every word.

    The pipeline would join words in a row that have the same plain tag, or give the tags of pieces.
    """
    if tag_scheme(example.run) == PLAIN_TAGS:
        return example.with_network("AutoModelForTokenClassification", MARK_WORDS)
    options = f', aggregation_strategy="first"{example.options}'
    return example.with_pipeline("mark", "token-classification", options, MARK)


def choose(example: Example) -> str:
    """The likeliest ending of a text."""
    return example.with_network("AutoModelForMultipleChoice", CHOOSE, "import torch\n", length=example.length)


def answer(example: Example) -> str:
    """The answer to a question."""
    question, context = "Where did Ada Lovelace grow up?", "Ada Lovelace was born in 1815. She grew up in London."
    if example.builtin:
        question = "What does the parameter axis mean?"
        context = "axis (int): Axis along which the sum is taken. out (ndarray): Where the result is stored."
    longest = example.flags.get("max_answer_length") or SquadArguments.max_answer_length
    result = f"print({SPAN})"
    if example.flags.get("version_2_with_negative"):
        result = SPAN_OR_NOTHING.format(span=SPAN)
    more = {"question": question, "context": context, "longest": longest, "result": result}
    return example.with_network("AutoModelForQuestionAnswering", ANSWER, "import torch\n", **more)


# By the pipeline tag of the model.
USES = {
    "fill-mask": fill_mask,
    "text-classification": classify,
    "token-classification": mark,
    "multiple-choice": choose,
    "question-answering": answer,
}


def usage(model: str, run: dict[str, Any], datasets: list[str], builtin: bool) -> str:
    """A short program that uses the model. For the arguments see ``Example``."""
    return USES[SCRIPTS[run["script"]].pipeline](Example(model, run, datasets, builtin))
