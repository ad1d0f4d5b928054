"""What the scripts call: data, loop, metrics. Plain functions; models only through the Hugging Face interface."""
