"""Write the vectors that BERT gives to texts, as google-research/bert's extract_features.py does.

One text a line of a plain file (also .gz, .xz); " ||| " separates the two texts of a pair. Every piece of every line,
from the last four layers, in the original's JSON lines:

    python extract_features.py --model_name_or_path runs/base --input_file texts.txt --output_file vectors.jsonl \
        --layers -1,-2,-3,-4 --max_seq_length 128

One vector a line, the mean over its pieces, for NumPy; np.load("vectors.npz")["vectors"] is (lines, layers, size):

    python extract_features.py --model_name_or_path runs/base --input_file texts.txt --output_file vectors.npz \
        --layers -1 --pooling mean

Lines longer than the model, in overlapping windows in which every piece is taken where it stands deepest in context:

    python extract_features.py --model_name_or_path runs/base --input_file pages.txt --output_file pages.npz \
        --max_seq_length 512 --long_lines window

Layers: -1 is the last and 0 the first, as in the original; the number before the first counted from the end (-13 of
12 layers) are the embeddings. --model_impl transformers runs transformers' network instead.
"""

import sys
from pathlib import Path

import torch
import transformers
from tqdm import tqdm
from transformers import AutoTokenizer

import modeling_bert_repro
from training.arguments import FeatureArguments
from training.engine.flags import parse_arguments
from training.engine.initial_weights import load_network
from training.engine.models import check_fit, checkpoint_config
from training.engine.run import report_errors
from training.tasks import feature_extraction

IMPLEMENTATIONS = {"repro": modeling_bert_repro, "transformers": transformers}


def main(argv: list[str] | None = None) -> None:
    args = parse_arguments(FeatureArguments, argv)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target = Path(args.output_file)
    if target.suffix not in (".jsonl", ".npz"):
        raise ValueError(f"--output_file {target}: expected a name that ends in .jsonl or .npz")
    if target.exists():
        raise ValueError(f"--output_file {target} exists; give another name, or delete it")
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer_name or args.model_name_or_path)
    config = checkpoint_config(args.model_name_or_path)
    check_fit(config, tokenizer, args.max_seq_length)
    layers = feature_extraction.parse_layers(args.layers, config.num_hidden_layers)
    lines = feature_extraction.read_lines(args.input_file, tokenizer, args.max_seq_length, args.long_lines)
    cls = IMPLEMENTATIONS[args.model_impl].BertModel
    model = load_network(cls, args.model_name_or_path, config=config, add_pooling_layer=False).model
    target.parent.mkdir(parents=True, exist_ok=True)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    found = feature_extraction.extract(model.to(device), lines, layers, tokenizer.pad_token_id, args.batch_size, device)
    progress = tqdm(found, total=len(lines), disable=None)  # quiet where stderr is not a terminal
    feature_extraction.write(target, progress, layers, args.pooling, tokenizer.convert_ids_to_tokens)
    windows = sum(len(rows) > 1 for rows in lines)
    print(f"{target}: {len(lines):,} lines" + (f", {windows:,} of them in windows" if windows else ""))


if __name__ == "__main__":
    sys.exit(report_errors(main))
