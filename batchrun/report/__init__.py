"""What a run came to, read back from its files: figures on the terminal, as JSON, or as one HTML page."""
