"""--lora_rank: changes have this rank, a resumed run has the same bits, and the finished folder is a plain BERT."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import run_glue
from tests.helpers.ecosystem import deprecations, needed
from tests.helpers.same_runs import check_same
from tests.helpers.script_checks import stopped_after_saving

PeftModel = needed("peft").PeftModel
pytestmark = [pytest.mark.slow, *deprecations]
RANK = 3


@pytest.mark.tried(
    "peft",
    "`--lora_rank` of the scripts: changes of this rank, resumed with the same bits, merged, and saved as an adapter",
)
@pytest.mark.parametrize("memory", [(), ("--gradient_checkpointing",)])
def test_from_the_flag_to_the_folder(tmp_path, finished, monkeypatch, memory):
    monkeypatch.setattr("bert_training.tasks.fine_tuning.draw_curves", lambda *_: None)
    rows = [f"the {word} house {n},{label}\n" for n in range(12) for word, label in (("red", "a"), ("old", "b"))]
    (tmp_path / "rows.csv").write_text("text,label\n" + "".join(rows))
    given = [f"--model_name_or_path={finished}", f"--train_file={tmp_path / 'rows.csv'}", "--validation_split=0.25"]
    given += [
        f"--lora_rank={RANK}",
        "--max_seq_length=32",
        "--learning_rate=5e-2",
        "--max_steps=6",
        "--save_steps=2",
        "--eval_steps=2",
        *memory,
    ]
    given += ["--load_best_model_at_end", "--metric_for_best_model=loss", "--per_device_train_batch_size=6"]
    whole, broken = tmp_path / "whole" / "run", tmp_path / "broken" / "run"
    run_glue.main([f"--output_dir={whole}", *given])
    with stopped_after_saving(step=4):
        run_glue.main([f"--output_dir={broken}", *given])
    run_glue.main([f"--output_dir={broken}", *given, "--resume_from_checkpoint=auto"])
    check_same(whole, broken)

    model, loaded = AutoModelForSequenceClassification.from_pretrained(whole, output_loading_info=True)
    assert (
        not loaded["missing_keys"]
        and not loaded["unexpected_keys"]
        and type(model).__module__.startswith("transformers.")
    )
    before, after = load_file(finished / "model.safetensors"), load_file(whole / "model.safetensors")
    for name, weight in after.items():
        if name.startswith("bert.encoder") and weight.ndim == 2:
            assert torch.linalg.matrix_rank(weight - before[name], tol=1e-5) == RANK, name
        elif name.startswith(("bert.embeddings", "bert.encoder")):
            assert torch.equal(weight, before[name]), name
        elif name in before:
            assert not torch.equal(weight, before[name]), name
    base = AutoModelForSequenceClassification.from_pretrained(finished, num_labels=2, ignore_mismatched_sizes=True)
    adapted = PeftModel.from_pretrained(base, whole / "adapter").eval()
    text = AutoTokenizer.from_pretrained(whole)("the red house", return_tensors="pt")
    with torch.no_grad():
        torch.testing.assert_close(adapted(**text).logits, model(**text).logits)
    assert adapted.peft_config["default"].base_model_name_or_path == str(finished)
    assert "adapter/adapter_model.safetensors" in json.loads((whole / "hashes.json").read_text())["sha256"]
    results = json.loads((whole / "all_results.json").read_text())
    run_glue.main(
        [
            f"--output_dir={tmp_path / 'again'}",
            f"--model_name_or_path={whole}",
            f"--validation_file={tmp_path / 'rows.csv'}",
        ]
    )
    again = json.loads((tmp_path / "again" / "all_results.json").read_text())
    assert (
        abs(again["eval_loss"] - results["eval_loss"]) < 0.2
        and f"| `lora_rank` | {RANK} |" in (whole / "README.md").read_text()
    )
