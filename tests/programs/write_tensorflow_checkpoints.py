"""Write the checkpoints of tests/data/tensorflow with TensorFlow itself. The tests only read them.

    python -m venv tf && tf/bin/pip install tensorflow-cpu==2.21.0
    tf/bin/python tests/programs/write_tensorflow_checkpoints.py tests/data/tensorflow

The variables have the names and the layout of google-research/bert, and random values. ``expected.json`` contains what
TensorFlow computes with the variables of ``pretrained``, with the formulas of the paper.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 20,
}
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##a", "##b", "##c", "##d", "##e"]
H, V = CONFIG["hidden_size"], CONFIG["vocab_size"]
INPUT_IDS = [[2, 5, 6, 4, 3, 7, 8, 3], [2, 9, 16, 3, 10, 3, 0, 0]]
TOKEN_TYPE_IDS = [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0]]
ATTENTION_MASK = [[1] * 8, [1] * 6 + [0] * 2]


def encoder_shapes() -> dict[str, tuple[int, ...]]:
    shapes = {
        "bert/embeddings/word_embeddings": (V, H),
        "bert/embeddings/token_type_embeddings": (2, H),
        "bert/embeddings/position_embeddings": (CONFIG["max_position_embeddings"], H),
        **norm("bert/embeddings/LayerNorm"),
        **dense("bert/pooler/dense", H, H),
    }
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{number}"
        for name in ("query", "key", "value"):
            shapes |= dense(f"{layer}/attention/self/{name}", H, H)
        shapes |= dense(f"{layer}/attention/output/dense", H, H) | norm(f"{layer}/attention/output/LayerNorm")
        shapes |= dense(f"{layer}/intermediate/dense", H, CONFIG["intermediate_size"])
        shapes |= dense(f"{layer}/output/dense", CONFIG["intermediate_size"], H) | norm(f"{layer}/output/LayerNorm")
    return shapes


def dense(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (H,), f"{name}/beta": (H,)}


PRETRAINING_HEADS = {
    "cls/predictions/output_bias": (V,),
    **dense("cls/predictions/transform/dense", H, H),
    **norm("cls/predictions/transform/LayerNorm"),
    "cls/seq_relationship/output_weights": (2, H),
    "cls/seq_relationship/output_bias": (2,),
}


def values(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    drawn = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sorted(shapes.items())}
    return {name: array + 1 if name.endswith("gamma") else array for name, array in drawn.items()}


def save(
    folder: Path,
    arrays: dict[str, np.ndarray],
    adam: bool = False,
    prefix: str = "bert_model.ckpt",
    devices: int = 1,
    version: int = v1.train.SaverDef.V2,
) -> None:
    """Save the variables as google-research/bert does, with its vocabulary and config beside them.

    devices: the number of devices, which have a file each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCAB))
    with tf.Graph().as_default():
        for number, (name, array) in enumerate(arrays.items()):
            with tf.device(f"/cpu:{number % devices}"):
                v1.get_variable(name, array.shape, initializer=v1.constant_initializer(array))
                for moment in ("adam_m", "adam_v") if adam else ():
                    v1.get_variable(f"{name}/{moment}", array.shape, initializer=v1.zeros_initializer())
        if adam:
            v1.train.get_or_create_global_step()
        with v1.Session(config=v1.ConfigProto(device_count={"CPU": devices})) as session:
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver(sharded=devices > 1, write_version=version)
            saver.save(session, str(folder / prefix), write_meta_graph=False, write_state=False)


def outputs(w: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of BERT without dropout (Devlin et al. 2018, Vaswani et al. 2017), with TensorFlow's operations."""
    heads, size = CONFIG["num_attention_heads"], H // CONFIG["num_attention_heads"]

    def project(x, name):
        return tf.linalg.matmul(x, w[f"{name}/kernel"]) + w[f"{name}/bias"]

    def normalise(x, name):
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-12) * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def gelu(x):
        return x * 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0)))

    def split(x):  # (B, L, H) -> (B, N, L, D)
        return tf.transpose(tf.reshape(x, (*x.shape[:2], heads, size)), (0, 2, 1, 3))

    table = w["bert/embeddings/word_embeddings"]
    x = tf.gather(table, INPUT_IDS) + tf.gather(w["bert/embeddings/token_type_embeddings"], TOKEN_TYPE_IDS)
    x = normalise(x + w["bert/embeddings/position_embeddings"][: len(INPUT_IDS[0])], "bert/embeddings/LayerNorm")
    hidden = (1.0 - tf.constant(ATTENTION_MASK, tf.float32))[:, None, None, :] * -10000.0
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{number}"
        q, k, v = (split(project(x, f"{layer}/attention/self/{name}")) for name in ("query", "key", "value"))
        weights = tf.nn.softmax(tf.linalg.matmul(q, k, transpose_b=True) / math.sqrt(size) + hidden)
        context = tf.reshape(tf.transpose(tf.linalg.matmul(weights, v), (0, 2, 1, 3)), x.shape)
        x = normalise(x + project(context, f"{layer}/attention/output/dense"), f"{layer}/attention/output/LayerNorm")
        inner = gelu(project(x, f"{layer}/intermediate/dense"))
        x = normalise(x + project(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
    pooled = tf.tanh(project(x[:, 0], "bert/pooler/dense"))
    transformed = gelu(project(x, "cls/predictions/transform/dense"))
    transformed = normalise(transformed, "cls/predictions/transform/LayerNorm")
    predictions = tf.linalg.matmul(transformed, table, transpose_b=True) + w["cls/predictions/output_bias"]
    relationship = tf.linalg.matmul(pooled, w["cls/seq_relationship/output_weights"], transpose_b=True)
    relationship += w["cls/seq_relationship/output_bias"]
    return {"last_hidden_state": x, "pooler_output": pooled, "prediction_logits": predictions} | {
        "seq_relationship_logits": relationship
    }


def main(folder: Path) -> None:
    encoder = encoder_shapes()
    pretrained = values(encoder | PRETRAINING_HEADS, 0)
    save(folder / "pretrained", pretrained, adam=True)
    expected = {name: tensor.numpy().tolist() for name, tensor in outputs(pretrained).items()}
    inputs = {"input_ids": INPUT_IDS, "token_type_ids": TOKEN_TYPE_IDS, "attention_mask": ATTENTION_MASK}
    (folder / "expected.json").write_text(json.dumps({"inputs": inputs, "outputs": expected}) + "\n")
    sums = {name: float(array.astype(np.float64).sum()) for name, array in pretrained.items()}
    (folder / "sums.json").write_text(json.dumps(sums, indent=1) + "\n")
    classifier = values(encoder | {"output_weights": (3, H), "output_bias": (3,)}, 1)
    save(folder / "classifier", classifier, prefix="model.ckpt-7")
    save(folder / "squad", values(encoder | {"cls/squad/output_weights": (2, H), "cls/squad/output_bias": (2,)}, 2))
    save(folder / "several_files", pretrained, devices=3)
    save(folder / "version_1", pretrained, version=v1.train.SaverDef.V1)
    (folder / "objects").mkdir(exist_ok=True)
    tf.train.Checkpoint(kernel=tf.Variable(np.zeros((2, 3), np.float32))).write(str(folder / "objects" / "model.ckpt"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
