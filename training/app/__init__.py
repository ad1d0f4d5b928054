"""The page on which a trained model is tried: ``python -m training app``."""
