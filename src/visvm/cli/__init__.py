"""The command line, one file per group of commands; it alone prints.

Reading order: ``terminal`` (bars, notes, tables), ``options`` (what several commands share),
``reporting``, ``figures``, ``gallery`` and ``evaluated`` (what people see), ``learn``, ``ask``,
``check``, ``sort``, ``sites``, ``serve``, ``bench``, ``upkeep``, ``doctor``, ``speed``, ``demo``
(the commands), ``main`` (all of them, and how errors are shown).
"""
