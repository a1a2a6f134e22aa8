"""The command line.

Reading order: ``main`` (the program and its errors), ``options`` and ``opening`` (what commands
share), then one file for each group of commands: ``learn``, ``ask``, ``sites``, ``serve``,
``bench``, ``upkeep``, ``demo`` and ``doctor``; ``terminal``, ``reporting`` and ``figures`` show
results.
"""
