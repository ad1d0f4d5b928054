"""The flags of the scripts: what they are, what they mean for resume and reports, and how they are parsed."""
