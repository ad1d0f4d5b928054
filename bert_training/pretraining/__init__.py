"""Pre-training: from documents to sentences, to a corpus of token ids, and to masked training instances."""
