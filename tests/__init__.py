import pytest

# The helpers' asserts then show values, as those of the tests do. It must be said before any of them is imported.
pytest.register_assert_rewrite("tests.helpers")
