"""Files that are whole or absent, locks, hashes; and what this process may use."""
