"""bert_training/engine/run.py: on a TPU, objects travel as bytes, and what is written is on the CPU."""

import pickle
import sys
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType

from bert_training.engine.checkpoint import UNKNOWN, prepared_state
from bert_training.engine.run import broadcast_object_list, gather_object, weights_to_save
from modeling_bert_repro import BertForMaskedLM
from tests.helpers.small_networks import small_config


class Window(NamedTuple):
    words: list[str]


@pytest.fixture
def tpu(monkeypatch, tmp_path):
    """torch_xla's `mesh_reduce` among three processes, which go through a file that torch.load reads, as there."""

    def mesh_reduce(tag, payload, reduce):
        parts = []
        for rank in range(3):
            part = payload if rank == 1 else torch.frombuffer(bytearray(OTHERS[rank]), dtype=torch.uint8)
            torch.save(part, tmp_path / tag)
            parts.append(torch.load(tmp_path / tag, weights_only=True))
        return reduce(parts)

    monkeypatch.setitem(sys.modules, "torch_xla", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch_xla.core", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch_xla.core.xla_model", SimpleNamespace(mesh_reduce=mesh_reduce))
    monkeypatch.setattr(PartialState, "distributed_type", DistributedType.XLA, raising=False)
    PartialState()  # which sets the type that it finds
    monkeypatch.setitem(PartialState._shared_state, "distributed_type", DistributedType.XLA)


OTHERS: dict[int, bytes] = {}


@pytest.mark.usefixtures("tpu")
def test_objects_of_all_processes_come_in_the_order_of_the_ranks():
    OTHERS.update({0: pickle.dumps([Window(["first"])]), 2: pickle.dumps([])})
    assert gather_object([Window(["own"]), None]) == [Window(["first"]), Window(["own"]), None]
    OTHERS.update({0: pickle.dumps(["of the first"]), 2: pickle.dumps([3])})
    objects = [{"own": 1}]
    broadcast_object_list(objects)
    assert objects == ["of the first"]


def test_a_process_alone_keeps_its_objects():
    objects = [Window(["own"])]
    assert gather_object(objects) == objects
    broadcast_object_list(objects)
    assert objects == [Window(["own"])]


def test_weights_that_moving_has_untied_are_tied_again():
    model = BertForMaskedLM(small_config())

    def prepare(network, optimizer):
        network.cls.predictions.decoder.weight = torch.nn.Parameter(
            network.get_input_embeddings().weight.detach().clone()
        )
        return network, optimizer

    accelerator = SimpleNamespace(prepare=prepare, unwrap_model=lambda network: network)
    run = SimpleNamespace(accelerator=accelerator, device=torch.device("xla"))
    state = prepared_state(run, model, None, None, 1, UNKNOWN)
    assert state.model.cls.predictions.decoder.weight is model.get_input_embeddings().weight


def test_tied_weights_are_written_once_from_a_tpu():
    model = BertForMaskedLM(small_config())
    assert weights_to_save(model) is None
    on_tpu = SimpleNamespace(
        device=torch.device("xla"), all_tied_weights_keys=model.all_tied_weights_keys, state_dict=model.state_dict
    )
    names = {name for name, _ in model.named_parameters()}  # each parameter under its first name
    assert names <= weights_to_save(on_tpu).keys() < model.state_dict().keys()
