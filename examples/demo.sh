#!/usr/bin/env bash
# Show offline what pre-training is worth, on the documentation of this Python installation: learn a vocabulary,
# pre-train, fine-tune on sentence pairs and on questions, and repeat the fine-tuning from random weights.
#   make demo            or, with the requirements installed:  DEMO_DIR=demo bash examples/demo.sh
# If the demo is stopped, start it again: finished parts are kept, and the interrupted part continues.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${DEMO_DIR:-demo} STEPS=${DEMO_STEPS:-2400} EXAMPLES=${DEMO_EXAMPLES:-4000}
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=true TRANSFORMERS_VERBOSITY=error
# How long a thread that has finished its part spins before it sleeps. Short spinning costs nothing on an idle machine
# and slows the training less beside other programs (lab/records/waiting_policy.json).
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-1000}

part() { # part NAME WHAT SCRIPT FLAGS...: run the script with $OUT/NAME as its output folder, unless that run is finished
  local folder=$OUT/$1 log=$OUT/$1.log script=$3
  echo "== $folder: $2"
  shift 3
  mkdir -p "$OUT"
  [ -f "$folder/all_results.json" ] ||
    python "$script" --output_dir "$folder" --resume_from_checkpoint auto "$@" >>"$log" ||
    { echo "stopped; its output is in $log; the same command goes on from there"; exit 1; }
  grep '^step ' "$log" | tail -n 1 || true
}

echo "Five runs, about ten minutes on two cores. What the scripts print is in $OUT/*.log."

# This is the smallest network: within minutes, more steps help more than more layers.
part pretrained "learn a vocabulary and pre-train a small BERT" run_pretraining.py --recipe fast --config_name tiny --max_seq_length 64 --max_steps "$STEPS" \
  --eval_steps 500 --logging_steps 50 --save_steps 500

pair=(--max_seq_length 96 --max_train_samples "$EXAMPLES" --num_train_epochs 3 --learning_rate 3e-4 --save_steps 0)
part pair-pretrained "fine-tune it: does this text belong to this summary?" run_glue.py --model_name_or_path "$OUT/pretrained" "${pair[@]}"
part pair-random "the same from random weights" run_glue.py --config_name tiny --tokenizer_name "$OUT/pretrained" "${pair[@]}"

answers=(--max_seq_length 128 --max_query_length 24 --doc_stride 64 --max_train_samples "$EXAMPLES" --max_eval_samples 1000
  --num_train_epochs 3 --learning_rate 3e-4 --save_steps 0)
part answers-pretrained "fine-tune it: find the answer to a question" run_squad.py --model_name_or_path "$OUT/pretrained" "${answers[@]}"
part answers-random "the same from random weights" run_squad.py --config_name tiny --tokenizer_name "$OUT/pretrained" "${answers[@]}"

echo
# The report begins with the table of scores; its other tables and its picture are in the folder.
bert-repro report "$OUT"/{pretrained,pair-random,pair-pretrained,answers-random,answers-pretrained} \
  --output_dir "$OUT/report" | sed '/^$/,$d'
echo
echo "All tables and the picture: $OUT/report"
cat <<END
The pre-trained model is in the folder $OUT/pretrained. Any Hugging Face tool opens it:

    from transformers import pipeline
    fill_mask = pipeline("fill-mask", model="$OUT/pretrained")
    print([guess["token_str"] for guess in fill_mask("Return the [MASK] of the array.")])

This program prints:
END
python - <<END
from transformers import pipeline
fill_mask = pipeline("fill-mask", model="$OUT/pretrained")
print([guess["token_str"] for guess in fill_mask("Return the [MASK] of the array.")])
END
