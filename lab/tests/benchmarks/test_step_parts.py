"""lab/benchmarks/step_parts.py: which part an operator belongs to."""

import pytest

from lab.benchmarks.step_parts import REST, part_of


@pytest.mark.parametrize(
    ("operator", "part"),
    [
        ("aten::addmm", "matrix products"),
        ("aten::add_", "sums and products of elements"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "attention"),
        ("aten::gelu_backward", "GELU"),
        ("aten::_log_softmax", "loss"),
        ("aten::_fused_adamw_", "AdamW"),
        ("aten::copy_", "copies and casts"),
        ("autograd::engine::evaluate_function: AddmmBackward0", REST),
    ],
)
def test_the_part_of_an_operator(operator, part):
    assert part_of(operator) == part
