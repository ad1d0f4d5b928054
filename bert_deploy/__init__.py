"""Uses and checks finished folders: ask, verify, export, and the service with its page."""
