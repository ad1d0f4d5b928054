"""Programs that tests start as processes of their own, and one that wrote files of tests/data."""
