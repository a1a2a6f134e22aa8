"""Files and labels → sums.

Reading order: ``labelled`` (which files, and what they show), ``work`` (what a session is to learn,
and the ``Engine`` protocol), ``local`` (in this process), ``ray`` and ``ray_tasks`` (on a cluster),
``session`` (a whole session: sums, solution, calibration, report).
"""
