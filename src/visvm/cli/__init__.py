"""The command line, one file per group of commands; it alone prints.

Reading order: ``terminal`` (bars, notes, tables), ``options`` (what several commands share),
``reporting``, ``figures`` and ``gallery`` (what people see), ``learn``, ``ask``, ``check``,
``sites``, ``serve``, ``bench``, ``upkeep``, ``doctor``, ``speed``, ``demo`` (the commands),
``main`` (all of them, and how errors are shown).
"""
