"""Named entities: CoNLL-2003 and other tagged text."""
