"""Texts that share a batch: the length decides which, and what happens to one does not happen to the others."""

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import torch

from bert_training.app import service_batches
from bert_training.app.service_batches import Batches, Single
from tokenization.errors import UserError


class Network:
    """Notes the rows of every pass, and gives each row its number of real tokens; the first pass waits."""

    def __init__(self):
        self.passes, self.may_go = [], threading.Event()

    def __call__(self, input_ids, attention_mask, token_type_ids):
        first = not self.passes
        self.passes.append(attention_mask.sum(1).tolist())
        if first:
            assert self.may_go.wait(20)
        if 13 in self.passes[-1]:
            raise MemoryError
        return {"logits": attention_mask.sum(1)}


def said(opened, outputs, number, row):
    return int(outputs["logits"][number]), len(row["input_ids"])


def single(length, answer=said):
    def row(opened):
        if length == 7:
            raise UserError("too long")
        return {"input_ids": [5] * length, "token_type_ids": [0] * length}

    return Single(length, row, answer)


def answered(singles, size=4, cancel=()):
    """The passes and the answers or errors of texts of which all but the first wait while that one is computed."""
    network = Network()
    opened = SimpleNamespace(model=network, tokenizer=SimpleNamespace(pad_token_id=0))

    async def run():
        batches = Batches([opened], size)
        tasks = batches.put(singles[:1])
        while not network.passes:
            await asyncio.sleep(0.001)
        tasks += batches.put(singles[1:])
        for number in cancel:
            tasks[number].cancel()
        network.may_go.set()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)

    return network.passes, asyncio.run(run())


def test_texts_of_similar_length_share_a_pass_and_each_gets_its_own_answer():
    lengths = [3, 30, 4, 31, 5, 29, 4]
    passes, answers = answered([single(length) for length in lengths])
    assert answers == [(length, length) for length in lengths]
    assert passes[0] == [3] and sorted(map(sorted, passes[1:])) == [[4, 4, 5], [29, 30, 31]]


def test_a_batch_has_no_more_texts_than_is_said_and_the_oldest_is_first():
    passes, _ = answered([single(9) for _ in range(8)], size=3)
    assert list(map(len, passes)) == [1, 3, 3, 1]
    passes, _ = answered([single(length) for length in (9, 50, 9, 9, 9)], size=2)
    assert passes[1] == [50]


def test_a_refused_or_broken_text_is_alone_with_its_error():
    def broken(*_):
        raise ZeroDivisionError

    _, answers = answered([single(8), single(8), single(7), single(8, broken), single(8)])
    assert answers[0] == answers[1] == answers[4] == (8, 8)
    assert isinstance(answers[2], UserError) and isinstance(answers[3], ZeroDivisionError)


def test_a_pass_that_fails_ends_its_texts_and_the_thread_goes_on():
    _, answers = answered([single(5), single(13), single(13), single(40)])
    assert isinstance(answers[1], MemoryError) and isinstance(answers[2], MemoryError)
    assert answers[0] == (5, 5) and answers[3] == (40, 40)


def test_texts_of_a_request_that_has_gone_are_not_computed():
    passes, answers = answered([single(5), single(9), single(9)], cancel=[1])
    assert isinstance(answers[1], asyncio.CancelledError) and answers[2] == (9, 9)
    assert passes[1:] == [[9]]


@pytest.mark.parametrize("options", [(), (("output_hidden_states", True),)])
def test_texts_with_other_arguments_of_the_network_do_not_share_a_pass(options):
    seen = []

    def network(input_ids, attention_mask, token_type_ids, **given):
        seen.append((len(input_ids), given))
        return {"logits": torch.zeros(len(input_ids))}

    batches = Batches([], 4)
    plain, other = single(9), Single(9, single(9).row, lambda *_: 0, options)
    batches._waiting = [service_batches._Waiting(one, Future()) for one in (plain, other, plain)]
    assert len(batches._next()) == (2 if options else 3)


def test_a_text_whose_client_has_gone_takes_no_place_in_a_batch():
    batches = Batches([], 2)
    batches._waiting = [service_batches._Waiting(single(9), Future()) for _ in range(4)]
    kept = batches._waiting[2:]
    for one in batches._waiting[:2]:
        one.answer.cancel()
    assert batches._next() == kept and not batches._waiting
