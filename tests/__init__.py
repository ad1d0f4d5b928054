import pytest

# With this, a failing assert in a helper shows its values, as one in a test does. pytest must know before any helper
# is imported.
pytest.register_assert_rewrite("tests.helpers")
