"""Mistakes in the training. Each is planted in a copy, and a test of the files that its row names must turn red.

After a function was renamed or rewritten, its new name or code must be entered here.
"""

from tests.helpers.planting import Fault

LOOP, CHECKPOINT, BATCHES = "engine/loop.py", "engine/checkpoint.py", "engine/batches.py"
OPTIMIZER, ATOMIC = "engine/optimizer.py", "files/atomic.py"
SEGMENTS, INSTANCES, MASKING = "pretraining/segments.py", "pretraining/instances.py", "pretraining/masking.py"
THRESHOLD, ANSWERS, STUDENT_T = "tasks/squad/threshold.py", "tasks/squad/answers.py", "tasks/student_t.py"

# For each fault its name, and (file of training, functions, correct code, faulty code, test files without "test_").
_ROWS = {
    # --- One step -----------------------------------------------------------------------------------------
    "labels of the first micro-batch counted only": (
        LOOP,
        "step_counts",
        "torch.stack([labelled_items(batch) for batch in micro_batches]).sum()",
        "labelled_items(micro_batches[0])",
        "engine/loop",
    ),
    "labels of this process counted only": (
        LOOP,
        "step_counts",
        'accelerator.reduce(counts, "sum")',
        "counts",
        "engine/global_batch",
    ),
    "ignored labels counted": (
        LOOP,
        "labelled_items",
        '(batch["labels"] != IGNORED).sum()',
        'torch.tensor(batch["labels"].numel())',
        "engine/global_batch",
    ),
    "gradients averaged over processes": (
        LOOP,
        "_forward_backward",
        "outputs.loss * run.world_size",
        "outputs.loss",
        "engine/global_batch",
    ),
    "the loss of this process reported": (
        LOOP,
        "_global_sums",
        'accelerator.reduce(values, "sum")',
        "values",
        "engine/global_batch",
    ),
    "no clipping": (LOOP, "training_steps", 'max_grad_norm or float("inf")', 'float("inf")', "engine/loop"),
    "a limit of 0 clips everything": (
        LOOP,
        "training_steps",
        'max_grad_norm or float("inf")',
        "max_grad_norm",
        "engine/loop",
    ),
    "a skipped step advances the schedule": (
        LOOP,
        "_update",
        "not accelerator.optimizer_step_was_skipped",
        "True",
        "engine/gradient_scaler",
    ),
    "gradients kept for the next step": (
        LOOP,
        "_update",
        "state.optimizer.zero_grad(set_to_none=True)",
        "None",
        "engine/global_batch",
    ),
    "no dropout after an evaluation": (LOOP, "training_steps", "model.train()", "None", "engine/global_batch"),
    "one dropout mask on all processes": (LOOP, "_step_seed", "[seed, step, rank]", "[seed, step]", "engine/loop"),
    "dropout depends on the past": (
        LOOP,
        "training_steps",
        "torch.manual_seed(_step_seed(run.seed, index, run.rank))",
        "None",
        "engine/loop",
    ),
    "a gradient that is not finite updates the weights": (
        LOOP,
        "training_steps",
        "np.isfinite(grad_norm) or accelerator.scaler",
        "True",
        "engine/loop",
    ),
    # --- Its data -----------------------------------------------------------------------------------------
    "a resumed run reads the first data again": (
        BATCHES,
        "step_batches",
        "range(start_step * data.per_step, total_steps * data.per_step)",
        "range((total_steps - start_step) * data.per_step)",
        "engine/batches",
    ),
    "all processes read the same rows": (
        BATCHES,
        "first_position",
        "(index * world_size + rank) * size",
        "index * world_size * size",
        "engine/batches",
    ),
    # --- Checkpoints --------------------------------------------------------------------------------------
    "moments not restored": (
        CHECKPOINT,
        "load_checkpoint",
        'state.optimizer.load_state_dict(saved["optimizer"])',
        "None",
        "engine/checkpoint",
    ),
    "schedule not restored": (
        CHECKPOINT,
        "load_checkpoint",
        'state.scheduler.load_state_dict(saved["scheduler"])',
        "None",
        "engine/checkpoint",
    ),
    "sums over earlier steps not restored": (
        CHECKPOINT,
        "load_checkpoint",
        'vars(state.totals).update(saved.get("totals", {}))',
        "None",
        "engine/stopping",
    ),
    "scale of the gradients not restored": (
        CHECKPOINT,
        "load_checkpoint",
        'run.accelerator.scaler.load_state_dict(saved["scaler"])',
        "None",
        "engine/gradient_scaler",
    ),
    "records after the checkpoint kept": (
        CHECKPOINT,
        "_cut_metrics",
        "_size(metrics) > size",
        "False",
        "engine/checkpoint",
    ),
    "other data accepted": (
        CHECKPOINT,
        "_check_same_run",
        'saved["data_sha256"] != checksums(origin.data)',
        "False",
        "engine/checkpoint",
    ),
    "the newest checkpoints dropped": (CHECKPOINT, "_drop_old", "known[:-limit]", "known[limit:]", "engine/checkpoint"),
    "checksums not compared": (ATOMIC, "damage", "sha256(folder / name) != digest", "False", "engine/checkpoint"),
    "renamed before the content is on the disk": (ATOMIC, "sealed_folder", "sync(file)", "None", "files/atomic"),
    # --- Segments and instances ---------------------------------------------------------------------------
    "the other document may be the same": (SEGMENTS, "_spans", "other >= chunks.document", "0", "pretraining/segments"),
    "half of the choices are IsNext": (
        SEGMENTS,
        "_chunk_pairs",
        "uniform(random_bits(bits, _LABEL)) >= is_next",
        "uniform(random_bits(bits, _LABEL)) >= 0.5",
        "pretraining/segments",
    ),
    "the rest of a chunk is lost": (
        SEGMENTS,
        "_chunk_pairs",
        "np.where(not_next, split, stop)",
        "stop",
        "pretraining/segments",
    ),
    "B runs into the next document": (
        SEGMENTS,
        "_spans",
        'np.minimum(np.searchsorted(offsets, offsets[start] + wanted, side="left"), other_end)',
        'np.searchsorted(offsets, offsets[start] + wanted, side="left").clip(max=len(offsets) - 1)',
        "pretraining/segments",
    ),
    "no short sequences": (
        SEGMENTS,
        "_targets",
        "uniform(random_bits(bits, _SHORT)) < short_seq_prob",
        "uniform(random_bits(bits, _SHORT)) < 0",
        "pretraining/segments",
    ),
    "A is cut at its end only": (
        SEGMENTS,
        "_spans",
        "below(random_bits(bits, _CUT_A), a_end - a_start - a_length + 1)",
        "0",
        "pretraining/segments",
    ),
    "the same order in every epoch": (
        INSTANCES,
        "PretrainingInstances.order",
        "random_bits(self.settings.seed, _SHUFFLE_STREAM, epoch, np.arange(self.epoch_size(epoch)))",
        "random_bits(self.settings.seed, _SHUFFLE_STREAM, np.arange(self.epoch_size(epoch)))",
        "pretraining/instances",
    ),
    # --- Masks --------------------------------------------------------------------------------------------
    "80/20/0": (
        MASKING,
        ("mask_instance", "mask_batch"),
        "rule.mask_replace_prob + rule.random_replace_prob",
        "1.0",
        "pretraining/masking",
    ),
    "special tokens masked": (
        MASKING,
        "masking_rule",
        "np.isin(np.arange(len(words)), tokenizer.all_special_ids)",
        "np.zeros(len(words), bool)",
        "pretraining/masking",
    ),
    "labels where nothing is masked": (
        MASKING,
        "mask_batch",
        "np.full(input_ids.shape, IGNORED, np.int64)",
        "input_ids.astype(np.int64)",
        "pretraining/masking",
    ),
    "pieces of a word masked apart": (MASKING, "mask_batch", "rule.whole_word_mask", "False", "pretraining/masking"),
    "the same masks in every epoch": (
        MASKING,
        "mask_batch",
        "random_bits(seed, epoch, index)",
        "random_bits(seed, 0, index)",
        "pretraining/masking",
    ),
    # --- Optimiser and schedule ---------------------------------------------------------------------------
    "LayerNorm decays": (
        OPTIMIZER,
        "parameter_groups",
        "EXEMPT.search(name)",
        "name.endswith('bias')",
        "engine/optimizer",
    ),
    "eps of torch": (OPTIMIZER, "create_optimizer", "EPS", "1e-8", "engine/optimizer"),
    "decay without the learning rate": (
        OPTIMIZER,
        "BertAdamW._step_group",
        'lr * group["weight_decay"]',
        'group["weight_decay"]',
        "engine/optimizer",
    ),
    "no warm-up": (OPTIMIZER, "linear_schedule", "step / warmup", "1.0", "engine/optimizer"),
    # --- Answers and statistics ---------------------------------------------------------------------------
    "the highest of the best thresholds": (
        THRESHOLD,
        "threshold_to_use",
        "current > best",
        "current >= best",
        "tasks/squad/threshold",
    ),
    "odds equal to the threshold empty the answer": (
        THRESHOLD,
        "apply_threshold",
        "null_odds[id_] > threshold",
        "null_odds[id_] >= threshold",
        "tasks/squad/threshold",
    ),
    "the largest null score": (ANSWERS, "_null_entry", "min", "max", "tasks/squad/answers"),
    "spans without their maximum context": (ANSWERS, "_span_scores", "counted[row]", "True", "tasks/squad/answers"),
    "deviation of a population": (
        STUDENT_T,
        ("mean_interval", "t_test"),
        "np.std(values, ddof=1)",
        "np.std(values)",
        "tasks/student_t",
    ),
    "one degree of freedom too many": (
        STUDENT_T,
        "mean_interval",
        "two_sided_quantile(level, len(values) - 1)",
        "two_sided_quantile(level, len(values))",
        "tasks/student_t",
    ),
}


def _test_file(name: str) -> str:
    room, _, module = name.rpartition("/")
    return f"tests/{room}/test_{module}.py"


FAULTS = {
    name: Fault(f"training/{file}", places, correct, faulty, tuple(map(_test_file, tests)))
    for name, (file, places, correct, faulty, *tests) in _ROWS.items()
}
