"""Commands about runs: see `python -m training`."""
