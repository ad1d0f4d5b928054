"""Mistakes in the training. Each is planted in a copy, and a test of the files that its row names must turn red.

When you rename or rewrite a function, update its row here.
"""

from tests.helpers.planting import Fault

LOOP = "bert_training/engine/loop.py"
CHECKPOINT = "bert_training/engine/checkpoint.py"
BATCHES = "bert_training/engine/batches.py"
OPTIMIZER = "bert_training/engine/optimizer.py"
ATOMIC = "bert_training/files/atomic.py"
SEGMENTS = "bert_training/pretraining/segments.py"
INSTANCES = "bert_training/pretraining/instances.py"
MASKING = "bert_training/pretraining/masking.py"
THRESHOLD = "bert_training/tasks/squad/threshold.py"
ANSWERS = "bert_training/tasks/squad/answers.py"
STATISTICS = "bert_training/tasks/statistics.py"

FAULTS = {
    # --- One step -----------------------------------------------------------------------------------------
    "labels of the first micro-batch counted only": Fault(
        file=LOOP,
        places="step_counts",
        correct="torch.stack([labelled_items(batch) for batch in micro_batches]).sum()",
        faulty="labelled_items(micro_batches[0])",
        tests=("tests/engine/test_loop.py",),
    ),
    "labels of this process counted only": Fault(
        file=LOOP,
        places="step_counts",
        correct='accelerator.reduce(counts, "sum")',
        faulty="counts",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "ignored labels counted": Fault(
        file=BATCHES,
        places="is_labelled",
        correct="labels != IGNORED",
        faulty="torch.ones_like(labels)",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "gradients averaged over processes": Fault(
        file=LOOP,
        places="_forward_backward",
        correct="outputs.loss * run.world_size",
        faulty="outputs.loss",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "the loss of this process reported": Fault(
        file=LOOP,
        places="_global_sums",
        correct='accelerator.reduce(values, "sum")',
        faulty="values",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "no clipping": Fault(
        file=LOOP,
        places="training_steps",
        correct='max_grad_norm or float("inf")',
        faulty='float("inf")',
        tests=("tests/engine/test_loop.py",),
    ),
    "a limit of 0 clips everything": Fault(
        file=LOOP,
        places="training_steps",
        correct='max_grad_norm or float("inf")',
        faulty="max_grad_norm",
        tests=("tests/engine/test_loop.py",),
    ),
    "a skipped step advances the schedule": Fault(
        file=LOOP,
        places="_update",
        correct="halved or accelerator.optimizer_step_was_skipped",
        faulty="False",
        tests=("tests/engine/test_gradient_scaler.py",),
    ),
    "gradients kept for the next step": Fault(
        file=LOOP,
        places="_update",
        correct="state.optimizer.zero_grad(set_to_none=True)",
        faulty="None",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "no dropout after an evaluation": Fault(
        file=LOOP,
        places="training_steps",
        correct="model.train()",
        faulty="None",
        tests=("tests/engine/test_global_batch.py",),
    ),
    "one dropout mask on all processes": Fault(
        file=LOOP,
        places="_step_seed",
        correct="[seed, step, rank]",
        faulty="[seed, step]",
        tests=("tests/engine/test_loop.py",),
    ),
    "dropout depends on the past": Fault(
        file=LOOP,
        places="training_steps",
        correct="torch.manual_seed(_step_seed(run.seed, index, run.rank))",
        faulty="None",
        tests=("tests/engine/test_loop.py",),
    ),
    "a gradient that is not finite updates the weights": Fault(
        file=LOOP,
        places="_is_finite",
        correct="np.isfinite(grad_norm) or accelerator.scaler",
        faulty="True",
        tests=("tests/engine/test_loop.py",),
    ),
    # --- Its data -----------------------------------------------------------------------------------------
    "a resumed run reads the first data again": Fault(
        file=BATCHES,
        places="step_batches",
        correct="range(start_step * data.per_step, total_steps * data.per_step)",
        faulty="range((total_steps - start_step) * data.per_step)",
        tests=("tests/engine/test_batches.py",),
    ),
    "all processes read the same rows": Fault(
        file=BATCHES,
        places="first_position",
        correct="(index * world_size + rank) * size",
        faulty="index * world_size * size",
        tests=("tests/engine/test_batches.py",),
    ),
    # --- Checkpoints --------------------------------------------------------------------------------------
    "moments not restored": Fault(
        file=CHECKPOINT,
        places="load_checkpoint",
        correct='state.optimizer.load_state_dict(saved["optimizer"])',
        faulty="None",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "schedule not restored": Fault(
        file=CHECKPOINT,
        places="load_checkpoint",
        correct='state.scheduler.load_state_dict(saved["scheduler"])',
        faulty="None",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "sums over earlier steps not restored": Fault(
        file=CHECKPOINT,
        places="load_checkpoint",
        correct='vars(state.totals).update(saved["totals"])',
        faulty="None",
        tests=("tests/engine/test_stopping.py",),
    ),
    "scale of the gradients not restored": Fault(
        file=CHECKPOINT,
        places="load_checkpoint",
        correct='run.accelerator.scaler.load_state_dict(saved["scaler"])',
        faulty="None",
        tests=("tests/engine/test_gradient_scaler.py",),
    ),
    "records after the checkpoint kept": Fault(
        file=CHECKPOINT,
        places="_go_back",
        correct="path.read_bytes()[:then]",
        faulty="path.read_bytes()",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "other data accepted": Fault(
        file=CHECKPOINT,
        places="_check_same_run",
        correct='saved["data_sha256"] != checksums(origin.data)',
        faulty="False",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "the newest checkpoints dropped": Fault(
        file=CHECKPOINT,
        places="_drop_old",
        correct="known[:-limit]",
        faulty="known[limit:]",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "checksums not compared": Fault(
        file=ATOMIC,
        places="damage",
        correct="sha256(folder / name) != digest",
        faulty="False",
        tests=("tests/engine/test_checkpoint.py",),
    ),
    "renamed before the content is on the disk": Fault(
        file=ATOMIC,
        places="sealed_folder",
        correct="sync(file)",
        faulty="None",
        tests=("tests/files/test_atomic.py",),
    ),
    # --- Segments and instances ---------------------------------------------------------------------------
    "the other document may be the same": Fault(
        file=SEGMENTS,
        places="_place_b_and_cut",
        correct="other >= chunks.document[rows]",
        faulty="0",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "half of the choices are IsNext": Fault(
        file=SEGMENTS,
        places="_chunk_pairs",
        correct="uniform(random_bits(bits, _LABEL)) >= is_next_prob",
        faulty="uniform(random_bits(bits, _LABEL)) >= 0.5",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "the rest of a chunk is lost": Fault(
        file=SEGMENTS,
        places="_chunk_pairs",
        correct="np.where(not_next, split, stop)",
        faulty="stop",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "B runs into the next document": Fault(
        file=SEGMENTS,
        places="_place_b_and_cut",
        correct='np.minimum(np.searchsorted(offsets, first + wanted, side="left"), other_end)',
        faulty='np.searchsorted(offsets, first + wanted, side="left").clip(max=len(offsets) - 1)',
        tests=("tests/pretraining/test_segments.py",),
    ),
    "no short sequences": Fault(
        file=SEGMENTS,
        places="_targets",
        correct="uniform(random_bits(bits, _SHORT)) < short_seq_prob",
        faulty="uniform(random_bits(bits, _SHORT)) < 0",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "A is cut at its end only": Fault(
        file=SEGMENTS,
        places="_cut",
        correct="below(random_bits(bits, _CUT_A), a_end - a_start - a_length + 1)",
        faulty="0",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "one pair in three is swapped": Fault(
        file=SEGMENTS,
        places="plan_ordered",
        correct="uniform(random_bits(chunks.bits, _SWAP)) < 0.5",
        faulty="uniform(random_bits(chunks.bits, _SWAP)) < 1 / 3",
        tests=("tests/pretraining/test_segments.py",),
    ),
    "the same order in every epoch": Fault(
        file=INSTANCES,
        places="PretrainingInstances.order",
        correct="random_bits(self.settings.seed, *streams, np.arange(start, stop))",
        faulty="random_bits(self.settings.seed, _SHUFFLE_STREAM, np.arange(start, stop))",
        tests=("tests/pretraining/test_instances.py",),
    ),
    "masks of every group begin anew": Fault(
        file=INSTANCES,
        places="PretrainingInstances._rows",
        correct="number + np.arange(stop - start)",
        faulty="np.arange(start, stop)",
        tests=("tests/pretraining/test_groups.py",),
    ),
    # --- Masks --------------------------------------------------------------------------------------------
    "80/20/0": Fault(
        file=MASKING,
        places=("mask_instance", "mask_batch"),
        correct="rule.mask_replace_prob + rule.random_replace_prob",
        faulty="1.0",
        tests=("tests/pretraining/test_masking.py",),
    ),
    "special tokens masked": Fault(
        file=MASKING,
        places="masking_rule",
        correct="np.isin(np.arange(len(words)), tokenizer.all_special_ids)",
        faulty="np.zeros(len(words), bool)",
        tests=("tests/pretraining/test_masking.py",),
    ),
    "labels where nothing is masked": Fault(
        file=MASKING,
        places="mask_batch",
        correct="np.full(input_ids.shape, IGNORED, np.int64)",
        faulty="input_ids.astype(np.int64)",
        tests=("tests/pretraining/test_masking.py",),
    ),
    "pieces of a word masked apart": Fault(
        file=MASKING,
        places="mask_batch",
        correct="rule.whole_word_mask",
        faulty="False",
        tests=("tests/pretraining/test_masking.py",),
    ),
    "the same masks in every epoch": Fault(
        file=MASKING,
        places="mask_batch",
        correct="random_bits(seed, epoch, index)",
        faulty="random_bits(seed, 0, index)",
        tests=("tests/pretraining/test_masking.py",),
    ),
    # --- Optimiser and schedule ---------------------------------------------------------------------------
    "LayerNorm decays": Fault(
        file=OPTIMIZER,
        places="parameter_groups",
        correct="EXEMPT.search(name)",
        faulty="name.endswith('bias')",
        tests=("tests/engine/test_optimizer.py",),
    ),
    "eps of torch": Fault(
        file=OPTIMIZER,
        places="create_optimizer",
        correct="EPS",
        faulty="1e-8",
        tests=("tests/engine/test_optimizer.py",),
    ),
    "no warm-up": Fault(
        file=OPTIMIZER,
        places="linear_schedule",
        correct="step / warmup",
        faulty="1.0",
        tests=("tests/engine/test_optimizer.py",),
    ),
    # --- Answers and statistics ---------------------------------------------------------------------------
    "the highest of the best thresholds": Fault(
        file=THRESHOLD,
        places="find_threshold_to_store",
        correct="current > best",
        faulty="current >= best",
        tests=("tests/tasks/squad/test_threshold.py",),
    ),
    "odds equal to the threshold empty the answer": Fault(
        file=THRESHOLD,
        places="gives_no_answer",
        correct="null_odds > threshold",
        faulty="null_odds >= threshold",
        tests=("tests/tasks/squad/test_threshold.py",),
    ),
    "the largest null score": Fault(
        file=ANSWERS,
        places="_null_entry",
        correct="min",
        faulty="max",
        tests=("tests/tasks/squad/test_answers.py",),
    ),
    "spans without their maximum context": Fault(
        file=ANSWERS,
        places="_span_scores",
        correct="counted[row]",
        faulty="True",
        tests=("tests/tasks/squad/test_answers.py",),
    ),
    "deviation of a population": Fault(
        file=STATISTICS,
        places=("mean_interval", "t_test"),
        correct="scipy.stats.sem(values)",
        faulty="scipy.stats.sem(values, ddof=0)",
        tests=("tests/tasks/test_seeds.py",),
    ),
    "one degree of freedom too many": Fault(
        file=STATISTICS,
        places="mean_interval",
        correct="len(values) - 1",
        faulty="len(values)",
        tests=("tests/tasks/test_seeds.py",),
    ),
}
