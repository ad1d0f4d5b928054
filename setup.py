"""The distribution modeling-bert-repro: the five packages and the scripts."""

import ast
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent


def version() -> str:
    """`modeling_bert_repro.__version__`, read from the source because importing the package needs torch."""
    file = HERE / "modeling_bert_repro" / "__init__.py"
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__version__"]:
            return ast.literal_eval(node.value)
    raise ValueError(f'{file}: expected a line __version__ = "...", found none')


setup(
    name="modeling-bert-repro",
    version=version(),
    description="BERT (Devlin et al. 2018) from raw text to a Hugging Face checkpoint",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(
        include=[
            "modeling_bert_repro",
            "tokenization",
            "tokenization.*",
            "bert_training",
            "bert_training.*",
            "bert_tools",
            "bert_deploy",
        ]
    ),
    package_data={"": ["py.typed", "*.json", "*.jinja", "page/*"]},
    # Installed as programs, not as modules, so that no module of a common name lands beside a user's own code.
    scripts=sorted(path.name for path in (*HERE.glob("run_*.py"), HERE / "extract_features.py")),
    entry_points={
        "console_scripts": ["bert-repro = bert_training.__main__:main"],
        "bert_repro.commands": [
            "builtin_data = bert_training.builtin_data.documentation:main",
            "curves = bert_training.cards.curves:main",
            "upload = bert_training.cards.hub_upload:main",
            "convert = bert_tools.convert:main",
            "corpus = bert_tools.corpus:main",
            "inspect = bert_tools.inspect_run:main",
            "plan = bert_tools.budget:main",
            "report = bert_tools.report:main",
            "score = bert_tools.score:main",
            "verify = bert_deploy.verify:main",
            "vocabulary = bert_tools.vocabulary:main",
            "ask = bert_deploy.ask:main",
            "export = bert_deploy.export:main",
            "serve = bert_deploy.serve:main",
        ],
    },
    python_requires=">=3.11,<3.14",
    install_requires=[
        "torch>=2.11,<3",
        "transformers>=5.17,<6",
        "tokenizers>=0.23.1,<1",
        "tqdm>=4.66",
    ],
    extras_require={
        "train": [
            "accelerate>=1.10,<2",
            "datasets>=4,<6",
            "filelock>=4.2.4,<5",  # the first that leaves what a file of that name holds
            "fsspec>=2024.2",
            "google-crc32c>=1.6",
            "huggingface_hub>=1.0,<3",
            "joblib>=1.4",
            "jinja2>=3.1",
            "matplotlib>=3.9",
            "numpy>=2",
            "pyarrow>=17",
            "safetensors>=0.6,<1",
            "scikit-learn>=1.5",
            "scipy>=1.13",
            "seqeval>=1.2.2",
        ],
        # Texts in .zst files, and on S3. Other URLs need the packages that fsspec names.
        "zstd": ["backports.zstd>=1.0"],
        "s3": ["s3fs>=2024.2"],
        # For `bert-repro export`, which needs the packages of "train" as well; tested with those of constraints.txt.
        "export": [
            "onnx>=1.17",
            "onnxruntime>=1.20",
            "onnxscript>=0.5",
        ],
        # The service and the page of `bert-repro serve`, which need the packages of "train" as well.
        "serve": [
            "fastapi>=0.132",
            "pydantic>=2.10",
            "uvicorn>=0.40",
        ],
        # Other people's packages that tests/ecosystem and examples/ try, from the version on that was tried.
        "ecosystem": [
            "captum>=0.9,<1",
            "onnx>=1.17",
            "onnxruntime>=1.20",
            "onnxscript>=0.5",
            "opacus>=1.6,<2",
            "optuna>=5,<6",
            "peft>=0.21,<1",
            "sentence-transformers>=6.2,<7",
            "spacy>=3.8,<4",
            "spacy-curated-transformers>=0.3.1,<1",
        ],
        # For examples/datatrove_corpus.py: datatrove, and what its steps for text need.
        "cluster": [
            "datatrove>=0.10.1,<1",
            "orjson>=3.10",
            "regex>=2024.5",
            "spacy>=3.8,<4",
        ],
        "dev": [
            "backports.zstd>=1.0",
            "build>=1.2",
            "hypothesis>=6.100",
            "import-linter>=2.5",
            "mypy>=1.18",
            "playwright>=1.50",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "ruff>=0.12",
            "setuptools>=77",
            "tensorboard>=2.17",
            "types-tqdm>=4.66",
        ],
    },
    classifiers=[
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
