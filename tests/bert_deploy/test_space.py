"""bert_deploy/space.py: what a Space holds, and what its app.py says; a small module plays Gradio."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from bert_deploy import readings
from bert_deploy.folder import open_folder
from bert_deploy.space import write_space
from bert_training.cards.publishing import PATHS_IN_CONFIGS
from tests.bert_deploy.guesses import classify
from tests.helpers.model_folders import edit_json, save_model

# Asks the function of the interface once, with a text for every box, and prints what it would show.
GRADIO = """
import json, os
class Interface:
    def __init__(self, function, boxes, output, title):
        self.function, self.boxes, self.output, self.title = function, boxes, output, title
    def launch(self):
        texts = json.loads(os.environ["TEXTS"])
        assert (len(texts), self.output) == (len(self.boxes), "json"), self.boxes
        print(json.dumps([self.title, self.function(*texts)], default=float))
"""
TEXT, OTHER = "the old doctor opened a small red house", "the king went home ."
HEADS = {
    "masked": ("BertForMaskedLM", {}, None, ["the [MASK] house"]),
    "classes": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "yes"}}, None, [TEXT]),
    "pairs": ("BertForSequenceClassification", {}, {"texts_per_example": 2}, [TEXT, OTHER]),
    "names": ("BertForTokenClassification", {"id2label": {0: "O", 1: "B-X", 2: "I-X"}}, None, [TEXT]),
    "answers": ("BertForQuestionAnswering", {}, None, ["who ?", f"{TEXT} . {OTHER}"]),
}


def expected(opened, texts):
    """What the service would say: the score and the words of the best."""
    if opened.abilities == ("masked words",):
        best = readings.masked_words(opened, *texts)[0][0]
        return best.probability, best.text
    if opened.abilities == ("classification",):
        best = classify(opened, *texts)[0]
        return best.probability, best.text
    if opened.abilities == ("names",):
        name = readings.names_in(opened, *texts)[0]
        return None, texts[0][name.start : name.end].split()[0]
    return None, readings.answer(opened, *texts).answer


@pytest.mark.parametrize("head", HEADS)
def test_a_space_says_what_the_service_says(tmp_path, pretrained, head):
    name, fields, run, texts = HEADS[head]
    opened = open_folder(str(save_model(tmp_path / "m '1\"", pretrained, name, run=run, **fields)))
    write_space(opened, str(tmp_path / "space"))
    (tmp_path / "gradio.py").write_text(GRADIO)
    settings = {**os.environ, "PYTHONPATH": str(tmp_path), "TEXTS": json.dumps(texts)}
    command = [sys.executable, "app.py"]
    done = subprocess.run(command, cwd=tmp_path / "space", env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    title, said = json.loads(done.stdout.splitlines()[-1])
    best = said[0] if isinstance(said, list) else said
    share, word = expected(opened, texts)
    assert title == "m '1\"" and share in (None, pytest.approx(best["score"], rel=1e-4))
    assert word in [best.get(key) for key in ("label", "token_str", "answer")] or best["word"].startswith(word[:2])
    assert len((tmp_path / "space" / "app.py").read_text().splitlines()) <= 16


def test_what_a_space_holds(tmp_path, pretrained, capsys):
    """The model and nothing else of a folder, and no folder of this machine that configs of older versions name."""
    secret = tmp_path / "zq7secret o'neil | `x` <b>"
    folder = shutil.copytree(pretrained, secret / 'a "strange": name')
    shutil.copytree(pretrained, folder / "checkpoint-10")
    for name in ("metrics.jsonl", "predictions.json", "run.json"):
        (folder / name).write_text('{"zq7secret": 1}')
    for name in ("config.json", "tokenizer_config.json"):
        edit_json(folder / name, **dict.fromkeys(PATHS_IN_CONFIGS, f"{secret}/file.txt"))
    target = tmp_path / "spaces" / "own"
    write_space(open_folder(str(folder)), str(target))
    assert "hf upload" in capsys.readouterr().out
    model = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
    files = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert files == {"app.py", "requirements.txt", "README.md", *(f"model/{name}" for name in model)}
    assert not [name for name in files if "zq7secret" in (target / name).read_bytes().decode("latin-1")]
    settings = yaml.safe_load((target / "README.md").read_text().split("---")[1])
    assert (settings["title"], settings["sdk"], settings["app_file"]) == ('a "strange": name', "gradio", "app.py")
    torch = importlib.metadata.version("torch").partition("+")[0]
    assert f"torch=={torch}\n" in (target / "requirements.txt").read_text()
    with pytest.raises(OSError, match="own"):
        write_space(open_folder(str(folder)), str(target))


@pytest.mark.parametrize("name", ["BertForMultipleChoice", "BertForNextSentencePrediction", "BertModel"])
def test_a_head_without_a_pipeline_is_refused(tmp_path, pretrained, name):
    opened = open_folder(str(save_model(tmp_path / "m", pretrained, name)))
    with pytest.raises(ValueError, match=r"no pipeline that answers as .*; make a Docker Space of the service"):
        write_space(opened, str(tmp_path / "space"))
    assert not (tmp_path / "space").exists()


@pytest.mark.parametrize("stored", [{"temperature": 1.5}, {"thresholds": [0.3, 0.4]}, {"long_texts": "windows"}])
def test_a_model_that_a_pipeline_does_not_answer_for_is_refused(tmp_path, pretrained, stored):
    """A pipeline would give other probabilities, no decision about labels, or read the beginning alone."""
    folder = save_model(tmp_path / "m", pretrained, "BertForSequenceClassification")
    opened = open_folder(str(folder))
    opened.model.config.fine_tuning = stored
    with pytest.raises(ValueError, match=r"transformers has no pipeline that answers as .*, with \w+"):
        write_space(opened, str(tmp_path / "space"))
