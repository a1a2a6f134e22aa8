"""The command line, one file per group of commands; it alone prints.

Reading order: ``terminal`` (bars, notes, tables), ``options`` (what several commands share),
``plain`` (help), ``reporting``, ``figures``, ``gallery``, ``answers`` and ``evaluated`` (what
people see), ``learn``, ``watch`` and ``ask``, ``check``, ``sort``, ``advise``, ``undo``, ``sites``,
``masked``, ``serve``, ``bench``, ``text``, ``upkeep``, ``doctor``, ``speed``, ``demo`` with
``demo_results``, ``demo_figure`` and ``demo_page`` (the commands), ``main`` (all of them, and how
errors are shown).
"""
