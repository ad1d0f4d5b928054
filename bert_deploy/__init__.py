"""A trained model is served, with a page to try it on: ``bert-repro serve``."""
