"""What every run is made of: processes, the loop, batches, the optimiser, checkpoints, the finished folder."""
