"""bert_training/engine/muon.py: which weights each optimiser has, one step, and the state that is saved."""

import copy
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType

from bert_training.engine.invariance import verify_invariance
from bert_training.engine.muon import check_muon, create_muon
from bert_training.engine.optimizer import create_optimizer, linear_schedule
from modeling_bert_repro import BertForPreTraining
from tests.helpers.tiny_training import LabelledTokens


def network(config, seed=0):
    torch.manual_seed(seed)
    return BertForPreTraining(config)


def batch(seed, config):
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, config.vocab_size, (4, 16), generator=draw)
    return {"input_ids": ids, "labels": ids, "next_sentence_label": torch.zeros(4, dtype=torch.long)}


def take_steps(model, optimizer, scheduler, config, steps):
    for step in steps:
        model.eval()(**batch(step, config)).loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)


def test_muon_has_the_matrices_of_the_layers_and_adamw_the_rest(small_config):
    model = network(small_config)
    names = {id(weight): name for name, weight in model.named_parameters()}
    *adamw, muon = create_muon(model, 1e-3, 0.02, 0.01).param_groups
    matrices = {names[id(weight)] for weight in muon["params"]}
    rest = {names[id(weight)] for group in adamw for weight in group["params"]}
    assert not matrices & rest and matrices | rest == set(names.values())
    layers = small_config.num_hidden_layers
    assert len(matrices) == 6 * layers and all("encoder.layer" in name for name in matrices)
    assert {"bert.embeddings.word_embeddings.weight", "bert.pooler.dense.weight"} <= rest
    assert [group["weight_decay"] for group in (*adamw, muon)] == [0.01, 0.0, 0.01]
    assert [group["lr"] for group in (*adamw, muon)] == [1e-3, 1e-3, 0.02]


def test_a_step_is_that_of_the_two_optimisers(small_config):
    """Matrices move by torch's Muon, and all other weights as with AdamW alone."""
    models = [network(small_config) for _ in range(3)]
    alone = torch.optim.Muon(
        [w for n, w in models[2].named_parameters() if "encoder.layer" in n and w.dim() == 2],
        lr=0.02,
        weight_decay=0.01,
    )
    optimizers = [create_muon(models[0], 1e-3, 0.02, 0.01), create_optimizer(models[1], 1e-3, 0.01), alone]
    for model, optimizer in zip(models, optimizers):
        model.eval()(**batch(0, small_config)).loss.backward()
        optimizer.step()
    before = network(small_config).state_dict()
    for name, weight in models[0].named_parameters():
        expected = models[2 if "encoder.layer" in name and weight.dim() == 2 else 1].state_dict()[name]
        assert torch.equal(weight, expected) and not torch.equal(weight, before[name]), name


def test_the_schedule_scales_both_rates(small_config):
    model = network(small_config)
    optimizer = create_muon(model, 1e-3, 0.02, 0.01)
    scheduler = linear_schedule(optimizer, 2, 4)
    take_steps(model, optimizer, scheduler, small_config, [0])
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([5e-4, 5e-4, 0.01])
    assert [group["lr"] for part in optimizer.parts for group in part.param_groups] == pytest.approx([5e-4, 5e-4, 0.01])


def test_a_restored_optimiser_goes_on_as_if_nothing_had_happened(small_config, tmp_path):
    """Also when it is restored from a file, and after its own state was replaced."""
    model = network(small_config)
    optimizer = create_muon(model, 1e-3, 0.02, 0.01)
    scheduler = linear_schedule(optimizer, 1, 8)
    take_steps(model, optimizer, scheduler, small_config, range(3))
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, tmp_path / "state.pt")
    weights = copy.deepcopy(model.state_dict())
    take_steps(model, optimizer, scheduler, small_config, range(3, 6))

    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    other = network(small_config, seed=5)
    other.load_state_dict(weights)
    again = create_muon(other, 7.0, 7.0, 0.5)
    schedule = linear_schedule(again, 1, 8)
    again.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["scheduler"])
    take_steps(other, again, schedule, small_config, range(3, 6))
    for name, weight in other.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


def test_every_division_into_micro_batches_gives_the_same_step(make_run, capsys, small_config):
    """--verify_invariance works: rounding in bfloat16 stays within its bounds."""
    model = network(small_config)
    run = make_run(per_device_train_batch_size=4, gradient_accumulation_steps=4, learning_rate=1e-3)
    verify_invariance(run, model, create_muon(model, 1e-3, 1e-3, 0.01), LabelledTokens())
    assert "micro-batches 1 x 1 x 16" in capsys.readouterr().out


def test_fsdp_is_refused():
    def run(kind):
        return SimpleNamespace(accelerator=SimpleNamespace(distributed_type=kind))

    check_muon(run(DistributedType.MULTI_GPU))
    with pytest.raises(ValueError, match="--optimizer muon needs whole matrices, which FSDP divides"):
        check_muon(run(DistributedType.FSDP))
