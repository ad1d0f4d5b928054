"""Commands about data, runs and models; `python -m training` lists them."""
