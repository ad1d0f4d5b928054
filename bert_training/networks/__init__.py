"""Networks: their initial weights and switches, the loss of a student, and transformers' BERT as a control."""
