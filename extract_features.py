#!/usr/bin/env python3
"""Write BERT's vectors of texts, as extract_features.py of google-research/bert does.

The input has one text per line (plain, .gz or .xz); " ||| " separates the two texts of a pair. Or it is a table, JSON
or Parquet with the column text, or sentence1 and sentence2. This command writes the vectors of every token of every
line, from the last four layers, in the original's format (JSON lines):

    python extract_features.py --model_name_or_path runs/base --input_file texts.txt --output_file vectors.jsonl \
        --layers -1,-2,-3,-4 --max_seq_length 128

This command writes one vector per line, the mean over its tokens, for NumPy. The array
np.load("vectors.npz")["vectors"] has the shape (lines, layers, hidden size):

    python extract_features.py --model_name_or_path runs/base --input_file texts.txt --output_file vectors.npz \
        --layers -1 --pooling mean

Lines that are longer than the model allows can be split into overlapping windows. A token's vector is that of the
window in which it has the most context:

    python extract_features.py --model_name_or_path runs/base --input_file pages.txt --output_file pages.npz \
        --max_seq_length 512 --long_lines window

In --layers, -1 is the last layer and 0 the first, as in the original. With 12 layers, -12 is the first layer as well,
and -13 stands for the embeddings. With --model_impl transformers, the network of transformers is used.
"""

import sys
from pathlib import Path

from bert_training.inputs.flags.feature_extraction import FeatureArguments
from bert_training.inputs.flags.parsing import check_command_line, parse_arguments

if __name__ == "__main__":
    check_command_line(FeatureArguments)  # mistakes are said before torch is loaded

import torch
import transformers
from tqdm import tqdm

import modeling_bert_repro
from bert_training.engine.errors import report_errors
from bert_training.engine.launch import keep_cudnn_from_attention
from bert_training.files.atomic import make_folder
from bert_training.inputs.models import check_fit, checkpoint_config
from bert_training.inputs.tokenizers import chosen_tokenizer
from bert_training.networks.initial_weights import load_network
from bert_training.tasks import feature_extraction
from tokenization.errors import UserError

LESS_MEMORY = "free some memory, or give a smaller --batch_size, which gives the same vectors"
IMPLEMENTATIONS = {"repro": modeling_bert_repro, "transformers": transformers}


def main(argv: list[str] | None = None) -> None:
    """Write the vectors that the flags ask for. Raises ValueError for a mistake in the flags or the input."""
    args = parse_arguments(FeatureArguments, argv)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target = Path(args.output_file)
    if target.exists() or target.suffix not in (".jsonl", ".npz"):
        raise UserError(f"--output_file {target}: expected a new name that ends in .jsonl or .npz")
    config = checkpoint_config(args.model_name_or_path)
    tokenizer = chosen_tokenizer(args.tokenizer_name, args.model_name_or_path)
    check_fit(config, tokenizer, args.max_seq_length)
    layers = feature_extraction.parse_layers(args.layers, config.num_hidden_layers)
    lines = feature_extraction.read_rows(args.input_file, tokenizer, args.max_seq_length, args.long_lines)
    for line in feature_extraction.remarks(args.input_file, tokenizer):
        print(line, flush=True)
    model_class = IMPLEMENTATIONS[args.model_impl].BertModel
    loaded = load_network(model_class, args.model_name_or_path, config=config, add_pooling_layer=False)
    model: torch.nn.Module = loaded.model
    make_folder(target.parent)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    keep_cudnn_from_attention()
    extracted = feature_extraction.extract(
        model.to(device), lines, layers, tokenizer.pad_token_id, args.batch_size, device
    )
    vectors = tqdm(extracted, total=len(lines), disable=None)  # shows nothing if stderr is not a terminal
    feature_extraction.write_vectors(target, vectors, layers, args.pooling, tokenizer.convert_ids_to_tokens)
    split = sum(len(windows) > 1 for windows in lines)
    cut = sum(row.cut for windows in lines for row in windows)
    done = f", {split:,} of them in several windows" if split else f", {cut:,} of them cut" if cut else ""
    print(f"{target}: {len(lines):,} lines{done}")


if __name__ == "__main__":
    sys.exit(report_errors(main, LESS_MEMORY))
