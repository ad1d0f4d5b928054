"""The built-in data: the English documentation of the user's Python installation, and tasks made of it."""
