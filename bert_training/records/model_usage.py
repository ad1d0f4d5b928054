"""Short programs for model cards, which show how a finished model is used."""

from bert_training.flags.fine_tuning import GlueArguments, SquadArguments

# For records of older versions, which do not say how many texts an example has.
SINGLE_SENTENCE_TASKS = ("cola", "sst2", "builtin_classification", "embedded_classification", "custom")

FILL_MASK = """from transformers import pipeline
fill_mask = pipeline("fill-mask", model={model!r})
print([guess["token_str"] for guess in fill_mask({text!r})])
"""
FEATURES = """from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained({model!r}), AutoModel.from_pretrained({model!r})
print(model(**tokenizer({text!r}, return_tensors="pt")).last_hidden_state.shape)
"""
CLASSIFY = """from transformers import pipeline
classify = pipeline("text-classification", model={model!r}{options})
print(classify({text}, truncation=True, max_length={length}))  # the length of its training
"""
CLASSIFY_AT_THE_END = """from transformers import AutoModelForTokenClassification, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForTokenClassification.from_pretrained({model!r}{code})
inputs = tokenizer({texts}, truncation=True, max_length={length}, return_tensors="pt")
label = model(**inputs).logits[0, -1].argmax()  # the label of a text is that of its last token
print(model.config.id2label[int(label)])
"""
MARK = """from transformers import pipeline
mark = pipeline("token-classification", model={model!r}, aggregation_strategy="first"{code})
print(mark("Ada Lovelace grew up in London ."))
"""
CHOOSE = """import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForMultipleChoice.from_pretrained({model!r})
text = "She takes the violin out of its case."
endings = ["She begins to play.", "She begins to swim.", "The case plays her.", "It is a very long river."]
# At most the length of its training
cut = {{"truncation": True, "max_length": {length}}}
inputs = tokenizer([text] * len(endings), endings, padding=True, **cut, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: tensor[None] for name, tensor in inputs.items()}}).logits
print(endings[int(logits[0].argmax())])
"""
ANSWER = """import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModelForQuestionAnswering.from_pretrained({model!r}{code})
question = {question!r}
context = {context!r}
inputs = tokenizer(question, context, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs)

# The best span of up to {longest} pieces that lies in the context
scores = outputs.start_logits[0][:, None] + outputs.end_logits[0][None, :]
inside = torch.tensor([part == 1 for part in inputs.sequence_ids(0)])
allowed = (inside[:, None] & inside).triu().tril({longest} - 1)
start, end = divmod(int(scores.masked_fill(~allowed, -torch.inf).argmax()), len(scores))
print(tokenizer.decode(inputs["input_ids"][0][start : end + 1]))
"""


def usage(model: str, kind: str, run: dict, datasets: list[str], builtin: bool) -> str:
    """A short program that uses the model.

    Args:
        model: the folder of the model or, if it is uploaded, its name on the Hub.
        kind, run, datasets: as in `model_card`.
        builtin: whether the training data is the built-in corpus or one of its tasks.
    """
    flags = run["flags"]
    own_class = flags.get("feature_based") or flags.get("bilstm_on_top")
    code = ", trust_remote_code=True" if own_class else ""
    length = flags.get("max_seq_length") or GlueArguments.max_seq_length
    if kind == "pretraining":
        text = "Return the [MASK] of the array." if builtin else "London is the [MASK] of England."
        template = FEATURES if flags.get("objective") == "ltr" else FILL_MASK
        return template.format(model=model, text=text)
    if kind == "glue":
        task = flags.get("task_name") or datasets[0]
        pair = {"text": "Return the sum of the elements.", "text_pair": "The sum is taken along the given axis."}
        single = run["texts_per_example"] == 1 if "texts_per_example" in run else task in SINGLE_SENTENCE_TASKS
        if flags.get("label_token") == "last":
            texts = repr(pair["text"]) if single else ", ".join(map(repr, pair.values()))
            return CLASSIFY_AT_THE_END.format(model=model, code=code, texts=texts, length=length)
        options = ', function_to_apply="none"' if task == "stsb" else ""
        text = repr(pair["text"] if single else pair)
        return CLASSIFY.format(model=model, options=options, text=text, length=length)
    if kind == "ner":
        return MARK.format(model=model, code=code)
    if kind == "swag":
        return CHOOSE.format(model=model, length=length)
    question, context = "Where did Ada Lovelace grow up?", "Ada Lovelace was born in 1815. She grew up in London."
    if builtin:
        question = "What does the parameter axis mean?"
        context = "axis (int): Axis along which the sum is taken. out (ndarray): Where the result is stored."
    longest = flags.get("max_answer_length") or SquadArguments.max_answer_length
    return ANSWER.format(model=model, code=code, question=question, context=context, longest=longest)
