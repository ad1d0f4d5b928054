"""What this project raises when its user has made a mistake."""


class UserError(ValueError):
    """A mistake in flags, files or folders; the message says what was expected, what came, and what to do.

    The scripts and commands print it as one line (``bert_training/engine/errors.py``). Any other ValueError comes from
    a library, or is a mistake of ours, and keeps its traceback. The class is here because every part that raises
    it may import this package.
    """
