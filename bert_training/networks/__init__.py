"""Networks: their sizes and checks, their initial weights, old checkpoints, and transformers' BERT as a control."""
