"""The models of this machine: which there are, what one is, how one comes here, and other forms of it."""
