from pathlib import Path

from setuptools import setup

setup(
    name="modeling-bert-repro",
    version="0.1.0",
    description="BERT (Devlin et al. 2018) from raw text to a Hugging Face checkpoint",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=["modeling_bert_repro", "tokenization"],
    package_data={"modeling_bert_repro": ["py.typed"], "tokenization": ["py.typed"]},
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
            "evaluate>=0.4.6,<1",
            "huggingface_hub>=1.0,<3",
            "matplotlib>=3.9",
            "numpy>=2",
            "pyarrow>=17",
            "safetensors>=0.6,<1",
            "scikit-learn>=1.5",
            "scipy>=1.13",
        ],
        "onnx": [
            "onnx>=1.17",
            "onnxruntime>=1.20",
            "onnxscript>=0.5",
        ],
        "dev": [
            "hypothesis>=6.100",
            "pytest>=8",
            "ruff>=0.12",
            "seqeval>=1.2.2",
            "tensorboard>=2.17",
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
