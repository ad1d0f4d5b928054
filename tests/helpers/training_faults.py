"""Mistakes in the training. Each is planted in a copy, and a test of the files above its row must turn red.

A row has the place, the code of the project and what stands there instead. When you rename or rewrite a function,
update its row here.
"""

from tests.helpers.planting import faults_in

FAULTS = {
    **faults_in(
        "bert_training/engine/loop.py",
        "tests/engine/test_loop.py",
        rows={
            "labels of the first micro-batch counted only": (
                "step_counts",
                "torch.stack([labelled_items(batch) for batch in micro_batches]).sum()",
                "labelled_items(micro_batches[0])",
            ),
            "no clipping": ("training_steps", 'max_grad_norm or float("inf")', 'float("inf")'),
            "a limit of 0 clips everything": ("training_steps", 'max_grad_norm or float("inf")', "max_grad_norm"),
            "one dropout mask on all processes": ("_step_seed", "[seed, step, rank]", "[seed, step]"),
            "dropout depends on the past": (
                "training_steps",
                "torch.manual_seed(_step_seed(run.seed, index, run.rank))",
                "None",
            ),
            "a gradient that is not finite updates the weights": (
                "_is_finite",
                "np.isfinite(grad_norm) or accelerator.scaler",
                "True",
            ),
        },
    ),
    **faults_in(
        "bert_training/engine/loop.py",
        "tests/engine/test_global_batch.py",
        rows={
            "labels of this process counted only": ("step_counts", 'accelerator.reduce(counts, "sum")', "counts"),
            "gradients averaged over processes": ("_forward_backward", "outputs.loss * run.world_size", "outputs.loss"),
            "the loss of this process reported": ("_global_sums", 'accelerator.reduce(values, "sum")', "values"),
            "gradients kept for the next step": ("_update", "state.optimizer.zero_grad(set_to_none=True)", "None"),
            "no dropout after an evaluation": ("training_steps", "model.train()", "None"),
        },
    ),
    **faults_in(
        "bert_training/engine/batches.py",
        "tests/engine/test_global_batch.py",
        rows={
            "ignored labels counted": ("is_labelled", "labels != IGNORED", "torch.ones_like(labels)"),
        },
    ),
    **faults_in(
        "bert_training/engine/loop.py",
        "tests/engine/test_gradient_scaler.py",
        rows={
            "a skipped step advances the schedule": (
                "_update",
                "halved or accelerator.optimizer_step_was_skipped",
                "False",
            ),
        },
    ),
    **faults_in(
        "bert_training/engine/batches.py",
        "tests/engine/test_batches.py",
        rows={
            "a resumed run reads the first data again": (
                "step_batches",
                "range(start_step * data.per_step, total_steps * data.per_step)",
                "range((total_steps - start_step) * data.per_step)",
            ),
            "all processes read the same rows": (
                "first_position",
                "(index * world_size + rank) * size",
                "index * world_size * size",
            ),
        },
    ),
    **faults_in(
        "bert_training/engine/checkpoint.py",
        "tests/engine/test_checkpoint.py",
        rows={
            "moments not restored": ("load_checkpoint", 'state.optimizer.load_state_dict(saved["optimizer"])', "None"),
            "schedule not restored": ("load_checkpoint", 'state.scheduler.load_state_dict(saved["scheduler"])', "None"),
            "records after the checkpoint kept": ("_go_back", "path.read_bytes()[:then]", "path.read_bytes()"),
            "other data accepted": ("_check_same_run", 'saved["data_sha256"] != checksums(origin.data)', "False"),
            "the newest checkpoints dropped": ("_drop_old", "known[:-limit]", "known[limit:]"),
        },
    ),
    **faults_in(
        "bert_training/engine/checkpoint.py",
        "tests/engine/test_stopping.py",
        rows={
            "sums over earlier steps not restored": (
                "load_checkpoint",
                'vars(state.totals).update(saved["totals"])',
                "None",
            ),
        },
    ),
    **faults_in(
        "bert_training/engine/checkpoint.py",
        "tests/engine/test_gradient_scaler.py",
        rows={
            "scale of the gradients not restored": (
                "load_checkpoint",
                'run.accelerator.scaler.load_state_dict(saved["scaler"])',
                "None",
            ),
        },
    ),
    **faults_in(
        "bert_training/files/atomic.py",
        "tests/engine/test_checkpoint.py",
        rows={
            "checksums not compared": ("damage", "sha256(folder / name) != digest", "False"),
        },
    ),
    **faults_in(
        "bert_training/files/atomic.py",
        "tests/files/test_atomic.py",
        rows={
            "renamed before the content is on the disk": ("sealed_folder", "sync(file)", "None"),
        },
    ),
    **faults_in(
        "bert_training/pretraining/segments.py",
        "tests/pretraining/test_segments.py",
        rows={
            "the other document may be the same": ("_place_b_and_cut", "other >= chunks.document[rows]", "0"),
            "half of the choices are IsNext": (
                "_chunk_pairs",
                "uniform(random_bits(bits, _LABEL)) >= is_next_prob",
                "uniform(random_bits(bits, _LABEL)) >= 0.5",
            ),
            "the rest of a chunk is lost": ("_chunk_pairs", "np.where(not_next, split, stop)", "stop"),
            "B runs into the next document": (
                "_place_b_and_cut",
                'np.minimum(np.searchsorted(offsets, first + wanted, side="left"), other_end)',
                'np.searchsorted(offsets, first + wanted, side="left").clip(max=len(offsets) - 1)',
            ),
            "no short sequences": (
                "_targets",
                "uniform(random_bits(bits, _SHORT)) < short_seq_prob",
                "uniform(random_bits(bits, _SHORT)) < 0",
            ),
            "A is cut at its end only": (
                "_cut",
                "below(random_bits(bits, _CUT_A), a_end - a_start - a_length + 1)",
                "0",
            ),
            "one pair in three is swapped": (
                "plan_ordered",
                "uniform(random_bits(chunks.bits, _SWAP)) < 0.5",
                "uniform(random_bits(chunks.bits, _SWAP)) < 1 / 3",
            ),
        },
    ),
    **faults_in(
        "bert_training/pretraining/instances.py",
        "tests/pretraining/test_instances.py",
        rows={
            "the same order in every epoch": (
                "PretrainingInstances.order",
                "random_bits(self.settings.seed, *streams, np.arange(start, stop))",
                "random_bits(self.settings.seed, _SHUFFLE_STREAM, np.arange(start, stop))",
            ),
        },
    ),
    **faults_in(
        "bert_training/pretraining/instances.py",
        "tests/pretraining/test_groups.py",
        rows={
            "masks of every group begin anew": (
                "PretrainingInstances._rows",
                "number + np.arange(stop - start)",
                "np.arange(start, stop)",
            ),
        },
    ),
    **faults_in(
        "bert_training/pretraining/masking.py",
        "tests/pretraining/test_masking.py",
        rows={
            "80/20/0": (("mask_instance", "mask_batch"), "rule.mask_replace_prob + rule.random_replace_prob", "1.0"),
            "special tokens masked": (
                "masking_rule",
                "np.isin(np.arange(len(words)), tokenizer.all_special_ids)",
                "np.zeros(len(words), bool)",
            ),
            "labels where nothing is masked": (
                "mask_batch",
                "np.full(input_ids.shape, IGNORED, np.int64)",
                "input_ids.astype(np.int64)",
            ),
            "pieces of a word masked apart": ("mask_batch", "rule.whole_word_mask", "False"),
            "the same masks in every epoch": (
                "mask_batch",
                "random_bits(seed, epoch, index)",
                "random_bits(seed, 0, index)",
            ),
        },
    ),
    **faults_in(
        "bert_training/engine/optimizer.py",
        "tests/engine/test_optimizer.py",
        rows={
            "LayerNorm decays": ("parameter_groups", "EXEMPT.search(name)", "name.endswith('bias')"),
            "eps of torch": ("create_optimizer", "EPS", "1e-8"),
            "no warm-up": ("linear_schedule", "step / warmup", "1.0"),
        },
    ),
    **faults_in(
        "bert_training/tasks/squad/threshold.py",
        "tests/tasks/squad/test_threshold.py",
        rows={
            "the highest of the best thresholds": ("find_threshold_to_store", "current > best", "current >= best"),
            "odds equal to the threshold empty the answer": (
                "gives_no_answer",
                "null_odds > threshold",
                "null_odds >= threshold",
            ),
        },
    ),
    **faults_in(
        "bert_training/tasks/squad/answers.py",
        "tests/tasks/squad/test_answers.py",
        rows={
            "the largest null score": ("_null_entry", "min", "max"),
            "spans without their maximum context": ("_span_scores", "counted[row]", "True"),
        },
    ),
    **faults_in(
        "bert_training/tasks/statistics.py",
        "tests/tasks/test_seeds.py",
        rows={
            "deviation of a population": (
                ("mean_interval", "t_test"),
                "scipy.stats.sem(values)",
                "scipy.stats.sem(values, ddof=0)",
            ),
            "one degree of freedom too many": ("mean_interval", "len(values) - 1", "len(values)"),
        },
    ),
}
