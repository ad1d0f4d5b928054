"""Stopping on SIGTERM and SIGINT (Ctrl-C): the step is finished, a checkpoint written, the process left.

The exit status is ``STOPPED``, so that a script of the batch system can tell "stopped, a checkpoint stands, start
me again" from "done" (0), a user's mistake (2), a crash (1) and death by the signal itself (128 + its number):

    python run_pretraining.py ... --resume_from_checkpoint auto
    while [ $? = 75 ]; do python run_pretraining.py ... --resume_from_checkpoint auto; done

A signal that comes between two steps, during an evaluation say, ends the run after the next one. torchrun hands a
signal on to its processes and gives them 30 seconds; its own exit status is 1.
"""

import os
import signal
import threading
import time

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: a temporary failure, the user is invited to try again
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One Ctrl-C reaches a process twice under torchrun: from the terminal, and handed on by torchrun.
SAME_SIGNAL_SECONDS = 1.0


class StopSignals:
    """Within this context the first signal only sets ``asked``; another one, a second later, kills as usual."""

    def __init__(self):
        self.asked = False
        self._time = 0.0
        self._earlier: dict = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread do this
            self._earlier = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_):
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame) -> None:
        if not self.asked:
            self.asked, self._time = True, time.monotonic()
        elif time.monotonic() - self._time > SAME_SIGNAL_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)


def only_parent_ends_me(_worker: int = 0) -> None:
    """For processes that make batches: the step being finished needs them, whoever else got the signal.

    Ctrl-C goes to all processes of the terminal, and Slurm signals all processes of a job.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # not on macOS; only this call says who sent a signal

        def wait():
            while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
                pass
            os._exit(0)

        parent = os.getppid()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=wait, daemon=True).start()
