"""The checks of .ci/release for a built wheel. The last two run in a clean environment in which it is installed.

python .ci/check_release.py files SOURCE WHEEL OTHER_WHEEL    # the wheel is complete and equal to the other one
python -P .ci/check_release.py library                        # without extras: a checkpoint can be loaded and saved
python -P .ci/check_release.py training                       # with the extra "train": its modules can be imported
"""

import importlib
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

# These import the packages of another extra.
OF_OTHER_EXTRAS = ("bert_deploy.serve", "bert_tools.datatrove_blocks")
PACKAGES = ("modeling_bert_repro", "tokenization", "bert_training", "bert_tools", "bert_deploy")


def scripts(source: Path) -> set[str]:
    """The names of the scripts in a folder."""
    return {path.name for path in (*source.glob("run_*.py"), source / "extract_features.py")}


def files(source: str, wheel: str, other: str) -> None:
    """Raise ValueError unless the wheel has exactly the files of the packages and the two wheels are equal.

    The other wheel was built directly from SOURCE, the first one from the sdist.
    """
    root = Path(source)
    expected = {
        str(path.relative_to(root))
        for package in PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        found = {name: one.read(name) for name in one.namelist()}
        again = {name: two.read(name) for name in two.namelist()}
    programs = {Path(name).name for name in found if ".data/scripts/" in name}
    inside = {name for name in found if ".dist-info/" not in name and ".data/scripts/" not in name}
    expected, inside = expected | scripts(root), inside | programs
    if inside != expected:
        raise ValueError(
            f"{wheel}: expected the files of {', '.join(PACKAGES)} and the scripts; "
            f"missing: {sorted(expected - inside)}; too many: {sorted(inside - expected)}; "
            "see packages and package-data in pyproject.toml, and setup.py"
        )
    if found != again:
        differing = sorted(name for name in found.keys() | again.keys() if found.get(name) != again.get(name))
        raise ValueError(
            f"{wheel}: it was built from the sdist and differs from {other} in {differing}; see MANIFEST.in"
        )
    print(f"{Path(wheel).name}: {len(inside)} files, the same whether built from the sdist or from the source")


def check_installed(module: object) -> None:
    """Raise ValueError if a module was imported from elsewhere than the running environment."""
    file = str(getattr(module, "__file__", None))
    if not file.startswith(sys.prefix):
        raise ValueError(
            f"expected the installed package in {sys.prefix}, got {file}; run this with python -P in another folder"
        )


def library() -> None:
    """Check that a checkpoint of transformers opens as our class and, saved again, as both, with equal outputs."""
    import torch
    import transformers

    import modeling_bert_repro
    import tokenization

    check_installed(modeling_bert_repro)
    check_installed(tokenization)
    torch.manual_seed(0)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "any", "text", "."]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(pieces), **sizes)
    original = transformers.BertForPreTraining(config).eval()
    original.save_pretrained("original")
    tokenization.build_tokenizer(pieces).save_pretrained("again")
    ours = modeling_bert_repro.BertForPreTraining.from_pretrained("original").eval()
    ours.save_pretrained("again")
    batch = transformers.AutoTokenizer.from_pretrained("again")(
        ["Any text.", "Text."], padding=True, return_tensors="pt"
    )
    again = modeling_bert_repro.BertForPreTraining.from_pretrained("again").eval()
    plain = transformers.AutoModelForPreTraining.from_pretrained("again").eval()
    with torch.no_grad():
        outputs = [model(**batch).prediction_logits for model in (original, ours, again, plain)]
    real = batch["attention_mask"].bool()
    for output in outputs[1:]:
        torch.testing.assert_close(output[real], outputs[0][real], rtol=1e-5, atol=1e-5)
    print(f"modeling_bert_repro {modeling_bert_repro.__version__}: loaded, saved and loaded again, outputs are equal")


def training() -> None:
    """Check that every module of the packages and every script can be imported, and that the versions are equal."""
    import bert_training as package
    import modeling_bert_repro

    check_installed(package)
    if package.__version__ != modeling_bert_repro.__version__:
        raise ValueError(f"expected one version, got {package.__version__} and {modeling_bert_repro.__version__}")
    modules = [module.name for name in PACKAGES for module in pkgutil.walk_packages([str(folder(name))], f"{name}.")]
    for name in modules:
        if not name.endswith("__main__") and name not in OF_OTHER_EXTRAS:
            check_installed(importlib.import_module(name))
    print(f"{len(modules)} modules can be imported")
    programs = [Path(sys.prefix, "bin", name) for name in ("bert-repro", "run_pretraining.py", "run_glue.py")]
    for program in programs:
        subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
    print(f"started: {', '.join(program.name for program in programs)}")


def folder(package: str) -> Path:
    """The folder of an installed package."""
    return Path(str(importlib.import_module(package).__file__)).parent


if __name__ == "__main__":
    _, check, *arguments = sys.argv
    {"files": files, "library": library, "training": training}[check](*arguments)
