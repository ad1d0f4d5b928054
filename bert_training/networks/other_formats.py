"""What a folder without weights that are read here holds in their place, and what to do with it.

transformers 5 reads the weights of PyTorch only: the files of TensorFlow 2 and Flax, which many published BERTs have
beside them or alone, need an older version. Adapters, data sets and exports cannot be trained.
"""

from pathlib import Path

from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_INDEX_NAME, WEIGHTS_NAME

from bert_training.files.hub_datasets import is_saved_data_set
from bert_training.files.json_files import read_object
from tokenization.errors import UserError

# An index lists the files of a sharded checkpoint. The names are in the order in which transformers looks for them.
WEIGHT_FILES = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
ADAPTER = "adapter_config.json"
OF_PYTORCH = f"give a folder with {SAFE_WEIGHTS_NAME} or {WEIGHTS_NAME}"
AGAIN = "save it anew with transformers 4, which reads it, {{name}}.from_pretrained({{folder!r}}, {}=True)"
AGAIN += ".save_pretrained('NEW'), and give NEW"
EXPORT = "an export for programs that only compute, which is not trained further; give the model that was exported"
# Patterns of names, what such a file is, and what to do.
FORMATS = (
    (("*.h5", "*.keras"), "weights of TensorFlow 2", AGAIN.format("from_tf")),
    (("flax_model*.msgpack",), "weights of Flax", AGAIN.format("from_flax")),
    (("rust_model.ot",), "weights for Rust", OF_PYTORCH),
    (("onnx/*.onnx", "*.onnx", "openvino_model.xml", "*.gguf", "*.tflite", "saved_model.pb"), EXPORT, ""),
    (
        ("*.distcp",),
        "a distributed checkpoint of torch",
        "put it together with torch.distributed.checkpoint.format_utils.dcp_to_torch_save, and give that file",
    ),
    (("zero_to_fp32.py",), "a checkpoint of DeepSpeed", "python zero_to_fp32.py . NEW puts it together; give NEW"),
    (
        ("checkpoint-*/" + SAFE_WEIGHTS_NAME, "checkpoint-*/" + WEIGHTS_NAME),
        "a checkpoint of a training that has not finished",
        "finish the training, or give the folder with that checkpoint",
    ),
    (("*.safetensors",), f"a file of weights that is not named {SAFE_WEIGHTS_NAME}", "rename it if it is the model's"),
    (
        ("*.bin", "*.pt", "*.pth"),
        f"a pickle that is not named {WEIGHTS_NAME}",
        "if it holds the weights, give the file itself",
    ),
)
# Files that transformers' Trainer writes beside the weights.
BESIDE_WEIGHTS = ("optimizer", "scheduler", "training_args", "training_state", "rng_state", "scaler")


def check_holds_weights(folder: Path, place: str) -> None:
    """Raise ValueError for a folder that holds no weights that are read here, with what it holds and a remedy.

    Names on the Hub, and folders that do not exist, are left to others.

    Args:
        place: how the message begins, such as "--model_name_or_path runs/x".
    """
    if folder.is_dir() and (found := found_instead(folder)):
        raise UserError(f"{place}: expected a folder with the weights of a model; {found}")


def found_instead(place: Path) -> str:
    """What a file or folder is in place of weights that are read here, and what to do; "" if it may be such weights."""
    if place.is_file():
        fitting = ((what, remedy) for patterns, what, remedy in FORMATS if any(map(place.match, patterns)))
        return next((f"it is {_described(place.parent, what, remedy)}" for what, remedy in fitting), "")
    if (place / ADAPTER).is_file():
        return (
            f"it holds an adapter ({ADAPTER}), which changes another model; merge it into the weights, "
            f"PeftModel.from_pretrained(MODEL, {str(place)!r}).merge_and_unload().save_pretrained('NEW'), and give NEW"
        )
    if is_saved_data_set(place):
        return "it holds a data set that save_to_disk wrote; give it as --dataset_name, and a model here"
    if any((place / name).is_file() for name in WEIGHT_FILES):
        return ""
    for patterns, what, remedy in FORMATS:
        paths = sorted(path for pattern in patterns for path in place.glob(pattern))
        if paths := [path for path in paths if not path.name.startswith(BESIDE_WEIGHTS)]:
            return f"it holds {paths[-1].relative_to(place)}, {_described(place, what, remedy)}"
    held = ", ".join(sorted(path.name for path in place.iterdir())[:9]) or "nothing"
    lacks = "" if (place / CONFIG_NAME).is_file() else f"it has no {CONFIG_NAME} and no weights; "
    return f"{lacks}it holds {held}; {OF_PYTORCH}"


def _described(folder: Path, what: str, remedy: str) -> str:
    return what + "; " * bool(remedy) + remedy.format(name=_class_name(folder), folder=str(folder))


def _class_name(folder: Path) -> str:
    """The class that opens the weights in the folder, by its config."""
    try:
        names = read_object(folder / CONFIG_NAME).get("architectures")
    except (OSError, ValueError):
        names = None
    name = str(names[0]) if isinstance(names, list) and names else ""
    name = name.removeprefix("TF").removeprefix("Flax")
    return name if name.isidentifier() else "AutoModelForPreTraining"
