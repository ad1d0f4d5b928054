"""From documents over sentences and a corpus of token ids to masked training instances, and the parts of a run."""
