"""Low-rank adaptation (LoRA; Hu et al. 2021, arXiv:2106.09685) by peft: small matrices learn beside a frozen encoder.

    W x  becomes  W x + 2 B A x      W: (out, in), frozen; A: (rank, in), drawn; B: (out, rank), 0 at first

They are put beside every linear layer of the encoder, and not beside query and value alone: with as many weights, that
comes closer to full fine-tuning (Dettmers et al. 2023, arXiv:2305.14314). Pooler and head are trained whole, because a
head is new. Optimiser and gradients have few weights then, which saves memory; the activations stay.

A checkpoint of such a training holds both, W as ``base_layer``. At its end ``merge`` adds 2 B A to W, so that the
finished folder is a plain BERT. ``save_adapter`` writes what was trained: A, B, pooler and head.
"""

import dataclasses
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from transformers import PreTrainedModel

from bert_training.files.atomic import sealed_folder

TARGETS = r".*encoder\.layer\.\d+\..*\.(query|key|value|dense)"
FROZEN = ("embeddings.", "encoder.")  # whatever else there is, is trained whole


def add_lora(model: PreTrainedModel, rank: int) -> None:
    """Freeze embeddings and encoder, and give each linear layer of the encoder matrices of this rank."""
    from peft import LoraConfig, inject_adapter_in_model  # an optional dependency, and slow to load

    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS), model)
    for name, parameter in model.named_parameters():
        inside = name.removeprefix(f"{model.base_model_prefix}.").startswith(FROZEN)
        parameter.requires_grad_("lora_" in name or not inside)


def save_adapter(model: PreTrainedModel, base: str | None, folder: Path) -> None:
    """Write what is trained as an adapter: ``peft.PeftModel.from_pretrained(model, folder)`` puts it on the model.

    Args:
        base: name or folder of that model, for the adapter's config.
    """
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    whole = sorted({name.rpartition(".")[0] for name in trained if "lora_" not in name})
    settings: Any = vars(model)["peft_config"]["default"]
    settings = dataclasses.replace(settings, base_model_name_or_path=base, modules_to_save=whole, inference_mode=True)
    with sealed_folder(folder) as draft:
        settings.save_pretrained(draft)
        weights = {
            f"base_model.model.{name.replace('.default.', '.')}": weight.detach().cpu().contiguous()
            for name, weight in trained.items()
        }
        save_file(weights, draft / "adapter_model.safetensors", metadata={"format": "pt"})


def merge(model: PreTrainedModel) -> None:
    """Put plain linear layers, with the product added to their weights, in place of those of ``add_lora``."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for name, module in [*model.named_modules()]:
        if isinstance(module, BaseTunerLayer):
            layer: Any = module
            layer.merge()
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, layer.get_base_layer())
    vars(model).pop("peft_config", None)
    model.requires_grad_(True)
