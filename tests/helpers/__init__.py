"""Code that several test files share. No file here contains tests."""
