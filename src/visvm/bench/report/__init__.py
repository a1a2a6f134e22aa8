"""Rows → pages: ``report.html``, ``report.md`` and figures.

Reading order: ``summary`` (rows → runs with their Ā, A_B, F_B), ``grouping`` (which runs may be
compared), ``published`` (the paper's numbers), ``formats`` and ``style`` (how numbers are written
and figures look), ``plots``, ``plots_costs``, ``plots_maps`` and ``plots_diagnosis`` (figures),
``pages`` (text, tables and figures as HTML and as Markdown), ``comparison`` (tables of methods),
``sections`` (what is said about which runs), ``write`` (the files).
"""
