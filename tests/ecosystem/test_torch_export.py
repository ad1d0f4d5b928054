"""torch.export: one graph for every batch size and length, saved and loaded without our code."""

import pytest
import torch

from tests.helpers.bert_pairs import CLASSES, make_inputs, ours
from tests.helpers.clean_process import run_clean

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning:torch"),
    pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects"),  # transformers records states
]


def export(name: str, strict: bool, attention: str = "sdpa", unpad_inputs: str | None = None):
    """Our class as a program for any batch size and length, from one batch of two rows with padding."""
    model, example = ours(name, attention), make_inputs(name, batch=2)
    example["attention_mask"][0, ..., 5:] = 0
    model.config.unpad_inputs = unpad_inputs
    sizes = {0: torch.export.Dim("batch"), example["input_ids"].dim() - 1: torch.export.Dim("length", max=12)}
    shapes = dict.fromkeys(example, sizes)
    return model, torch.export.export(model, (), example, dynamic_shapes=shapes, strict=strict)


def inputs_of(name: str, batch: int, length: int, real: int) -> dict[str, torch.Tensor]:
    inputs = make_inputs(name, length=length, batch=batch, seed=7)
    inputs["attention_mask"][0, ..., real:] = 0
    return inputs


@pytest.mark.tried("torch", "`torch.export` of every class: one program for all batch sizes and lengths")
@pytest.mark.parametrize(
    "attention, strict, unpad_inputs", [("sdpa", False, "auto"), ("sdpa", True, None), ("eager", False, None)]
)
@pytest.mark.parametrize("name", CLASSES)
def test_a_program_for_all_shapes(name, attention, strict, unpad_inputs, record_property):
    model, program = export(name, strict, attention, unpad_inputs)
    run = program.module()
    for batch, length, real in ((1, 3, 3), (5, 12, 7), (3, 9, 1)):
        inputs = inputs_of(name, batch, length, real)
        with torch.no_grad():
            for found, expected in zip(run(**inputs).to_tuple(), model(**inputs).to_tuple(), strict=True):
                tokens = inputs["attention_mask"].bool()
                if unpad_inputs and found.shape[: tokens.dim()] == tokens.shape:  # the program computes padding
                    found, expected = found[tokens], expected[tokens]
                difference = (found - expected).abs().max().item()
                record_property("largest difference", difference)
                assert found.shape == expected.shape and difference < 1e-9


@pytest.mark.tried("torch", "a program that `torch.export.save` wrote, in a process without our code")
def test_a_saved_program_needs_no_code_of_ours(tmp_path):
    name = "BertForSequenceClassification"
    model, program = export(name, strict=False)
    (tmp_path / "program").mkdir()
    torch.export.save(program, tmp_path / "program" / "model.pt2")
    inputs = inputs_of(name, 6, 11, 4)
    torch.save({"inputs": inputs, "logits": model(**inputs).logits.detach()}, tmp_path / "program" / "expected.pt")
    output = run_clean(
        """
        import pathlib
        import torch
        import transformers.modeling_outputs  # the class of the outputs

        folder = pathlib.Path(sys.argv[1])
        expected = torch.load(folder / "expected.pt")
        logits = torch.export.load(folder / "model.pt2").module()(**expected["inputs"]).logits
        torch.testing.assert_close(logits, expected["logits"], rtol=0, atol=1e-9)
        print("loaded")
        """,
        tmp_path / "program",
    )
    assert "loaded" in output
