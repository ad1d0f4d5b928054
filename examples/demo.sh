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

part() { # part NAME SCRIPT FLAGS...: run the script with $OUT/NAME as its output folder, unless that run is finished
  local folder=$OUT/$1 script=$2
  shift 2
  [ -f "$folder/all_results.json" ] && return
  echo
  echo "== $folder"
  python "$script" --output_dir "$folder" --resume_from_checkpoint auto "$@"
}

echo "== The pre-training comes first. After 20 steps it prints how long it will take on this machine."
echo "== The four fine-tuning runs that follow take about as long in total."
echo "== Long texts are cut at short lengths to save time; the fine-tuning runs warn of it."

# This is the smallest network: within minutes, more steps help more than more layers.
part pretrained run_pretraining.py --recipe fast --config_name tiny --max_seq_length 64 --max_steps "$STEPS" \
  --eval_steps 500 --logging_steps 50 --save_steps 500

pair=(--max_seq_length 96 --max_train_samples "$EXAMPLES" --num_train_epochs 3 --learning_rate 3e-4 --save_steps 0)
part pair-pretrained run_glue.py --model_name_or_path "$OUT/pretrained" "${pair[@]}"
part pair-random run_glue.py --config_name tiny --tokenizer_name "$OUT/pretrained" "${pair[@]}"

answers=(--max_seq_length 128 --max_query_length 24 --doc_stride 64 --max_train_samples "$EXAMPLES" --max_eval_samples 1000
  --num_train_epochs 3 --learning_rate 3e-4 --save_steps 0)
part answers-pretrained run_squad.py --model_name_or_path "$OUT/pretrained" "${answers[@]}"
part answers-random run_squad.py --config_name tiny --tokenizer_name "$OUT/pretrained" "${answers[@]}"

echo
bert-repro report "$OUT"/{pretrained,pair-random,pair-pretrained,answers-random,answers-pretrained} \
  --output_dir "$OUT/report"
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
