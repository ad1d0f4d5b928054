"""Files: texts, tables, JSON and packed files, atomic writing, hashes, data sets of the Hub, uploads."""
