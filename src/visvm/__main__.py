"""``python -m visvm``: the command line."""

from visvm.cli import main

main()
