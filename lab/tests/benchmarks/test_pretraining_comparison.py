"""lab/benchmarks/pretraining_comparison.py scores runs of different kinds on the same held-out instances."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from bert_training.pretraining.build_corpus import build_corpus
from bert_training.pretraining.instances import PretrainingInstances
from lab.benchmarks.pretraining_comparison import KINDS, batches, main, masked_loss
from modeling_bert_repro import BertForMaskedLM, BertForPreTraining

FLAGS = ("whole_word_mask", "phases", "max_seq_length", "per_device_train_batch_size", "seed")


def test_runs_are_scored_on_the_same_instances(tmp_path, tokenizer_folder, text_file, small_config, capsys):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    small_config.update({"vocab_size": len(tokenizer), "max_position_embeddings": 512})
    for seed, (name, cls) in enumerate({"pairs": BertForPreTraining, "packed": BertForMaskedLM}.items()):
        torch.manual_seed(seed)
        folder = tmp_path / name
        cls(small_config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        flags = dict.fromkeys(FLAGS) | {"objective": "mlm_nsp" if name == "pairs" else "mlm"}
        (folder / "run.json").write_text(json.dumps({"commit": "abc", "total_steps": 7, "flags": flags}))
    for split in ("train", "validation"):
        corpus = build_corpus([text_file], tokenizer, tmp_path / "pairs" / "corpus" / split)
    output = tmp_path / "out.json"
    main([str(tmp_path / "pairs"), str(tmp_path / "packed"), "--positions", "2048", "--output", str(output)])
    record = json.loads(output.read_text())
    assert list(record["runs"]) == ["pairs", "packed"] and record["runs"]["packed"]["objective"] == "mlm"
    assert all(list(run["masked_loss"]) == list(KINDS) for run in record["runs"].values())
    assert capsys.readouterr().out.count("\n") == 4

    # The loss of the network itself, for one instance at a time, gives the same numbers.
    model = BertForMaskedLM.from_pretrained(tmp_path / "packed").eval()
    instances = PretrainingInstances(corpus, tokenizer, KINDS["packed, 128"])
    total, count = 0.0, 0
    with torch.no_grad():
        for place in range(min(2048 // 128, instances.epoch_size(0))):
            batch = instances.batch(place, place + 1)
            items = int((batch["labels"] != -100).sum())
            total, count = total + float(model(**batch).loss) * items, count + items
    found = record["runs"]["packed"]["masked_loss"]["packed, 128"]
    assert found == pytest.approx(total / count, rel=1e-5)
    assert record["predictions"]["packed, 128"] == count == masked_loss(model, batches(instances, 2048))[1]
