"""What a finished folder shows: its training curves and its model card."""
