"""The former name of the commands: `python -m training plan` does what `bert-repro plan` does.

This folder is no part of what is installed. It will be removed with version 0.3.
"""

import sys

from bert_training.__main__ import main

print(f"python -m training is now called bert-repro: bert-repro {' '.join(sys.argv[1:])}", file=sys.stderr)
sys.exit(main())
