"""Files: packed, written whole or not at all, hashed; tables, data sets of the Hub, uploads."""
