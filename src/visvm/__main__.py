"""``python -m visvm``: the command line."""

from visvm.cli.main import main

main()
