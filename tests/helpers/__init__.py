"""What several test files share. No file here has tests of its own."""
