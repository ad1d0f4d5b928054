"""Documents -> sentences -> a corpus of token ids -> masked training instances."""
