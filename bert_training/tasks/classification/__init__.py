"""GLUE and other classification of sentences and pairs."""
