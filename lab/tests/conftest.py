"""The fixtures of the product's tests, which those of the laboratory share."""

from tests.conftest import *  # noqa: F403
