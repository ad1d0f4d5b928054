"""The built-in data: English documentation of the user's own Python installation, and tasks made of it."""
