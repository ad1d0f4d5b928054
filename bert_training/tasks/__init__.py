"""Fine-tuning and the tasks of the paper."""
