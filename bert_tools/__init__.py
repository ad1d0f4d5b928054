"""Commands about data, runs and models; `bert-repro` lists them."""
