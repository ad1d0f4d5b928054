"""The ``BertModel`` of this package, on which all heads are built: plain BERT with the fast path, if that is there.

fast_path.py, unpadding.py and fast_dropout.py can be deleted. This is the only file that imports fast_path.py.
"""

from typing import Any

from torch import Tensor

from .modeling_bert import BertModel as PlainBertModel
from .pretrained import HeadReads, UnpadInputs

try:
    from .fast_path import BertModel
except ModuleNotFoundError as error:
    if error.name != f"{__package__}.fast_path":
        raise  # fast_path.py exists, but a module that it imports does not

    class BertModel(PlainBertModel):  # type: ignore[no-redef]
        """Plain BERT, which refuses the switches of the fast path."""

        def encode(
            self,
            *inputs: Tensor | None,
            unpad_inputs: UnpadInputs = None,
            reads: HeadReads | None = None,
            **kwargs: Any,
        ) -> Tensor:
            """The hidden states (B, L, H) of plain BERT. Raises ValueError if something else is asked for."""
            asked = {
                "unpad_inputs": self.find_switch(unpad_inputs),
                "fast_dropout": getattr(self.config, "fast_dropout", False),
                "cu_seq_lens_q": kwargs.get("cu_seq_lens_q") is not None,
            }
            if names := [name for name, value in asked.items() if value]:
                raise ValueError(
                    f"expected {' and '.join(names)} to be unset, because fast_path.py was deleted from this copy of "
                    "the network: unset them in the config or in the call, or restore fast_path.py, unpadding.py and "
                    "fast_dropout.py"
                )
            return super().encode(*inputs, **kwargs)


__all__ = ["BertModel"]
