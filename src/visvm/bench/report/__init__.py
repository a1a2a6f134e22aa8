"""Rows → pages: ``report.html``, ``report.md`` and figures.

Reading order: ``summary`` (rows → runs with their Ā, A_B, F_B), ``grouping`` (which runs may be
compared), ``published`` (the paper's numbers), ``plots`` and ``plots_analysis`` (figures),
``pages`` (text, tables and figures as HTML and as Markdown), ``comparison``, ``sections`` and
``sections_analysis`` (what is said about which runs), ``write`` (the files).
"""
