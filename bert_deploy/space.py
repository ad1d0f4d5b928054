"""Write a model as a Space of the Hub: ``app.py`` on Gradio and transformers' pipeline, requirements and the model.

Nothing of this project is in it, except the pipeline for questions, which transformers 5 no longer has. What a trained
folder holds besides the model (records, text, states of training) stays where it is.
"""

import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

from bert_deploy.folder import OpenedModel
from bert_training.cards.publishing import CONFIGS, published_config
from bert_training.files import atomic
from bert_training.inputs.flags.scripts import ANSWERS, CLASSES, MASKED, NAMES
from bert_training.inputs.json_files import read_json
from bert_training.tasks.classification.trained_for import stored_facts
from modeling_bert_repro import qa_pipeline
from tokenization.bert_tokenizer import save_tokenizer_files
from tokenization.errors import UserError

GRADIO = "6.31.0"  # with which app.py was tried
WEIGHTS = ("model*.safetensors", "model.safetensors.index.json")
APP = '''"""What a BERT says of a text; written by bert-repro serve --space."""

import gradio
import transformers
{imports}
ask = transformers.pipeline("{task}", "model")


def answer({arguments}):
    return {call}


gradio.Interface(answer, {boxes}, "json", title={title}).launch()
'''
QA = "from qa_pipeline import register_question_answering\n\nregister_question_answering()\n"
# Of an ability: the pipeline, the boxes, what is called, and what it needs.
TASKS = {
    MASKED: ("fill-mask", "text", "ask(text)", ""),
    CLASSES: ("text-classification", "text", "ask(text, top_k=None, truncation=True, max_length={longest})", ""),
    NAMES: ("token-classification", "text", 'ask(text, aggregation_strategy="first")', ""),
    ANSWERS: ("question-answering", "question, context", "ask(question=question, context=context)", QA),
}
PAIRS = (
    "text, second_text",
    "ask(dict(text=text, text_pair=second_text), top_k=None, truncation=True, max_length={longest})",
)
README = """---
title: {title}
sdk: gradio
sdk_version: "{gradio}"
python_version: "{python}"
app_file: app.py
---

This page shows what a BERT says about your texts. The folder `model` holds the model, which transformers opens.
"""


def write_space(opened: OpenedModel, target: str) -> None:
    """Write the Space into a new folder.

    Raises:
        ValueError: transformers has no pipeline for the head, or none that reads and judges texts as this model does.
        OSError: the folder exists and is not empty.
    """
    ability = opened.abilities[0] if opened.abilities else ""
    plain = ability in TASKS and not opened.at_the_end and type(opened.model).__module__.startswith("transformers.")
    stored = stored_facts(opened.model.config)
    if not plain or {"thresholds", "temperature"} & set(stored) or stored.get("long_texts", "cut") != "cut":
        raise UserError(
            f"--space: transformers has no pipeline that answers as {opened.folder} does ({ability or 'no head'}, with "
            f"{', '.join(stored) or 'no settings'}); make a Docker Space of the service, see docs/deploy.md"
        )
    folder = Path(target)
    atomic.make_folder(folder.parent)
    with atomic.new_folder(folder) as draft:
        (draft / "app.py").write_text(_app(opened, ability), encoding="utf-8")
        if ability == ANSWERS:
            shutil.copy(str(qa_pipeline.__file__), draft)
        needed = [f"{name}=={importlib.metadata.version(name).partition('+')[0]}" for name in ("torch", "transformers")]
        (draft / "requirements.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
        title, python = json.dumps(opened.name), f"{sys.version_info[0]}.{sys.version_info[1]}"
        readme = README.format(title=title, gradio=GRADIO, python=python)  # a string of JSON is one of YAML
        (draft / "README.md").write_text(readme, encoding="utf-8")
        _copy_model(opened, draft / "model")
    print(f"{folder}: try it with python app.py in that folder; then create a Gradio Space and upload the folder:")
    print(f"  hf upload --repo-type space NAME/SPACE {folder}")


def _app(opened: OpenedModel, ability: str) -> str:
    task, arguments, call, imports = TASKS[ability]
    if ability == CLASSES and opened.texts == 2:
        arguments, call = PAIRS
    boxes = json.dumps(["text" for _ in arguments.split(", ")])
    call = call.replace("{longest}", str(opened.longest))
    return APP.format(imports=imports, task=task, arguments=arguments, call=call, boxes=boxes, title=ascii(opened.name))


def _copy_model(opened: OpenedModel, target: Path) -> None:
    """The model, without the folders of this machine that older configs name, and the tokenizer as it was opened."""
    config = opened.model.config
    target.mkdir()
    save_tokenizer_files(opened.tokenizer, target, config.max_position_embeddings, config.type_vocab_size)
    for name in CONFIGS:
        source = target / name if (target / name).is_file() else opened.folder / name
        atomic.write_json(target / name, published_config(read_json(source)))
    for path in sorted({path for pattern in WEIGHTS for path in opened.folder.glob(pattern)}):
        shutil.copyfile(path, target / path.name)
