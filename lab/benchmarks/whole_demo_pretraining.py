"""The pre-training of the other side of whole_demo.py: python lab/benchmarks/whole_demo_pretraining.py RUN.json.

It does what transformers' example run_mlm does, without dropout, after a vocabulary has been learnt with the tokenizers
library. The random weights and the trained ones are saved in the folders ``random`` and ``trained`` of the output. Only
the standard library is imported at the top, so that the time of all other imports is that of the program.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def main(argv: list[str]) -> None:
    """Learn the vocabulary and train, with the settings of the file."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import (
        AutoConfig,
        AutoModelForMaskedLM,
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        set_seed,
    )

    from lab.benchmarks.contestants import packed_blocks
    from lab.benchmarks.whole_run_programs import make_trainer

    run = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    output = Path(run["output"])
    config = AutoConfig.from_pretrained(run["config"])
    vocabulary = BertWordPieceTokenizer()
    vocabulary.train(run["train"], vocab_size=config.vocab_size, show_progress=False)
    vocabulary.save_model(run["config"])
    tokenizer = AutoTokenizer.from_pretrained(run["config"])
    set_seed(run["seed"])
    network = AutoModelForMaskedLM.from_config(config)
    for folder in (output / "random", output / "trained"):
        tokenizer.save_pretrained(folder)
    network.save_pretrained(output / "random")
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # as in the fast recipe; the config keeps its rate for fine-tuning
    lines = Path(run["train"]).read_text(encoding="utf-8").splitlines()
    blocks = packed_blocks(tokenizer, [line for line in lines if line], run["length"])
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    trainer = make_trainer(run, network, tokenizer, {"train": blocks, "validation": None}, collator, None)
    trainer.train()
    trainer.save_model(str(output / "trained"))


if __name__ == "__main__":
    main(sys.argv[1:])
