"""The page on which a trained model is tried: ``bert-repro app``."""
