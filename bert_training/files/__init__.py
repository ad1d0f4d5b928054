"""Files: atomic writing, hashes, tables, data sets of the Hub, uploads."""
