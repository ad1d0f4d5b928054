"""What all tests of the page share."""

import asyncio

import pytest


@pytest.fixture(autouse=True)
def closed_event_loops(monkeypatch):
    """Gradio makes an event loop where there is none, and leaves it to the end of the process."""
    made, make = [], asyncio.new_event_loop

    def noted():
        made.append(make())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", noted)
    yield
    for loop in made:
        if not loop.is_running():
            loop.close()
    asyncio.set_event_loop(None)
