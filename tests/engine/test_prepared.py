"""bert_training/engine/fsdp.py: what is one weight stays one weight on devices that replace parameters, as TPUs do.

torch has a switch for such moves, which torch_xla sets: `set_overwrite_module_params_on_conversion`. Here a move to
"another device" is a copy of every parameter under this switch, and the rest of `Accelerator.prepare`, which exchanges
the parameters of the optimiser on a TPU, is Accelerate's own code.
"""

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.optim.lr_scheduler import LambdaLR

from bert_training.engine.batches import step_batches
from bert_training.engine.checkpoint import load_checkpoint, save_checkpoint
from bert_training.engine.fsdp import broken_ties, check_optimizer, prepare
from bert_training.engine.loop import training_steps
from bert_training.engine.optimizer import create_optimizer
from bert_training.engine.state import UNKNOWN, TrainingState
from modeling_bert_repro import BertForPreTraining
from tests.helpers.small_networks import NO_DROPOUT, small_config
from tests.helpers.tiny_training import LabelledTokens

EMBEDDINGS, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"


def moved(model: torch.nn.Module) -> torch.nn.Module:
    """The network with new parameters of the same values, as after a move to a TPU."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        return model._apply(torch.clone)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.fixture
def tpu(monkeypatch):
    """`Accelerator.prepare` takes its path for TPUs, and its move replaces the parameters."""
    whole = Accelerator.prepare

    def prepare_on_tpu(self, *objects):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Accelerator, "distributed_type", DistributedType.XLA)
            patch.setattr(Accelerator, "prepare_model", lambda self, model, **_: moved(model))
            return whole(self, *objects)

    monkeypatch.setattr(Accelerator, "prepare", prepare_on_tpu)


def network_and_optimizer():
    torch.manual_seed(0)
    model = BertForPreTraining(small_config(**NO_DROPOUT))
    return model, create_optimizer(model, 1e-2, 0.01)


def train(run, model, optimizer, steps=2, start=0):
    state = TrainingState(model, optimizer, LambdaLR(optimizer, lambda step: 1.0), 4, UNKNOWN)
    if start:
        load_checkpoint(run, run.output_dir / f"checkpoint-{start}", state)
    batches = step_batches(LabelledTokens(), run, start, start + steps)
    losses = [step.loss for step in training_steps(run, state, batches, max_grad_norm=1.0, start_step=start)]
    return losses, state


@pytest.mark.usefixtures("tpu")
def test_a_step_moves_embeddings_and_decoder_together(make_run):
    run, (model, optimizer) = make_run(), network_and_optimizer()
    before = model.get_parameter(EMBEDDINGS)
    model, optimizer = prepare(run, model, optimizer)
    weights = model.get_parameter(EMBEDDINGS)
    assert weights is not before and model.get_parameter(DECODER) is weights and broken_ties(model) == []
    train(run, model, optimizer)
    assert torch.equal(model.get_parameter(DECODER), model.get_parameter(EMBEDDINGS))
    assert not torch.equal(model.get_parameter(EMBEDDINGS), before)


def test_the_losses_on_a_tpu_are_those_elsewhere(make_run, request):
    run = make_run()
    expected = train(run, *prepare(run, *network_and_optimizer()))[0]
    request.getfixturevalue("tpu")
    assert train(run, *prepare(run, *network_and_optimizer()))[0] == expected


@pytest.mark.usefixtures("tpu")
def test_a_checkpoint_of_a_tpu_holds_one_weight_and_is_resumed(make_run, tmp_path):
    run = make_run(output_dir=str(tmp_path / "run"))
    whole = train(run, *prepare(run, *network_and_optimizer()), steps=4)[1].model.state_dict()
    _, state = train(run, *prepare(run, *network_and_optimizer()), steps=2)
    folder = save_checkpoint(run, 2, state)
    stored = load_file(folder / "model.safetensors")
    assert DECODER not in stored and torch.equal(stored[EMBEDDINGS], state.model.get_parameter(DECODER))
    opened = BertForPreTraining.from_pretrained(folder)
    assert opened.get_parameter(DECODER) is opened.get_parameter(EMBEDDINGS)
    _, state = train(run, *prepare(run, *network_and_optimizer()), steps=2, start=2)
    for weight_name, weight in state.model.state_dict().items():
        assert torch.equal(weight, whole[weight_name]), weight_name


def test_an_optimizer_with_other_parameters_is_found():
    model, optimizer = network_and_optimizer()
    check_optimizer(model, optimizer)
    lost = optimizer.param_groups[0]["params"].pop()
    with pytest.raises(AssertionError, match="the optimiser does not have"):
        check_optimizer(model, optimizer)
    optimizer.param_groups[0]["params"] += [lost, torch.nn.Parameter(torch.zeros(2))]
    with pytest.raises(AssertionError, match=r"the optimiser has \d+ parameters, the network trains \d+"):
        check_optimizer(model, optimizer)
