"""The names of what lies in the output folder of lab/run_paper.py."""

PLAN = "plan.json"  # every run with its command
RECORD = "record.json"  # the results of all runs, and what they were made with
DATA = "data"  # the folder of the built-in corpus and its tasks
VOCABULARY = "vocabulary"  # the folder of the tokenizer
SIZES = "sizes"  # the folder with a sub-folder for the config.json of each size
CELLS = "cells"  # the folder with a sub-folder for each run
