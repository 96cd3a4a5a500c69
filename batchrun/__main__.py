"""`python -m batchrun`: the same command as `batchrun`."""

from batchrun.cli import main

if __name__ == "__main__":
    main()
