"""`python -m osb.cli`: the same as `osbctl`, for processes that start it without relying on PATH."""

from osb.cli.entry import main

if __name__ == "__main__":
    main()
