"""bert_training/engine/batches.py: padding, the order of the examples, and which step sees which of them."""

import numpy as np
import pytest
import torch

from bert_training.engine.batches import Features, evaluation_due, step_batches, steps_for


def features(count=10, seed=0):
    rows = [list(range(1, 2 + i % 4)) for i in range(count)]
    return Features(
        {"input_ids": rows, "token_type_ids": [[0] * len(r) for r in rows], "labels": list(range(count))}, 0, seed
    )


def test_collate_pads_on_the_right_to_the_longest_row():
    batch = features().collate([0, 2])
    assert batch["input_ids"].tolist() == [[1, 0, 0], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 0, 0], [1, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 0]]
    assert batch["labels"].tolist() == [0, 2]
    assert batch["labels"].dtype == torch.int64


def test_labels_of_tokens_are_padded_with_what_the_loss_ignores():
    columns = {"input_ids": [[1, 2], [3]], "token_type_ids": [[0, 0], [0]], "labels": [[4, 5], [6]]}
    assert Features(columns, 0).collate([1, 0])["labels"].tolist() == [[6, -100], [4, 5]]


def test_float_labels_stay_float32():
    rows = Features({"input_ids": [[1], [2]], "token_type_ids": [[0], [0]], "labels": [0.5, 2.0]}, 0)
    assert rows.collate([1])["labels"].dtype == torch.float32


def test_every_epoch_is_a_new_permutation():
    source = features(10)
    epochs = [source.batch(10 * e, 10 * e + 10)["labels"].tolist() for e in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs == [features(10).batch(10 * e, 10 * e + 10)["labels"].tolist() for e in range(3)]
    assert epochs[0] != features(10, seed=1).batch(0, 10)["labels"].tolist()


def test_a_batch_may_cross_epochs_and_be_cut_anywhere():
    source = features(10)
    whole = source.batch(0, 25)["labels"].tolist()
    assert whole == source.batch(0, 13)["labels"].tolist() + source.batch(13, 25)["labels"].tolist()


def seen(run, source, start, stop):
    """The labels of every optimiser step, sorted."""
    return [
        sorted(i for b in window for i in b["labels"].tolist()) for window in step_batches(source, run, start, stop)
    ]


def test_a_step_sees_the_same_data_however_it_is_cut(make_run):
    source = features(50)
    whole = seen(make_run(per_device_train_batch_size=12), source, 0, 6)
    assert seen(make_run(per_device_train_batch_size=3, gradient_accumulation_steps=4), source, 0, 6) == whole
    ranks = []
    for rank in range(2):
        run = make_run(per_device_train_batch_size=3, gradient_accumulation_steps=2)
        run.rank, run.world_size = rank, 2
        ranks.append(seen(run, source, 0, 6))
    assert [sorted(a + b) for a, b in zip(*ranks)] == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_sees_the_data_of_the_following_steps(make_run, workers):
    source = features(50)
    whole = seen(make_run(), source, 0, 8)
    assert seen(make_run(dataloader_num_workers=workers), source, 5, 8) == whole[5:]


def test_steps_cover_every_example(make_run):
    args = make_run(num_train_epochs=3.0).args
    assert steps_for(args, 4 / 10) == 8  # 30 examples make 8 batches of 4; the last one is filled up.
    assert steps_for(args, 4 / 8) == 6
    assert steps_for(args, 64 / 1) == 1
    args.max_steps = 5
    assert steps_for(args, 4 / 10) == 5
    assert np.ceil(0.1 * 1000 / 10) == steps_for(make_run(num_train_epochs=0.1).args, 10 / 1000)


def test_another_order_of_rows_that_were_already_read():
    source = features(50)
    first = source.batch(0, 50)["labels"].tolist()
    other = source.shuffled(seed=7)
    assert other.batch(0, 50)["labels"].tolist() == features(50, seed=7).batch(0, 50)["labels"].tolist() != first
    assert source.batch(0, 50)["labels"].tolist() == first
    assert other.columns is source.columns


def test_evaluation_is_due_at_the_end_of_epochs_or_every_so_many_steps(make_run):
    run = make_run(per_device_train_batch_size=4)
    assert [step for step in range(1, 11) if evaluation_due(run, step, 10)] == [3, 5, 8, 10]
    run.args.eval_steps = 4
    assert [step for step in range(1, 11) if evaluation_due(run, step, 10)] == [4, 8]
