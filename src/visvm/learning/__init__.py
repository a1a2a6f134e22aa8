"""Files and labels → sums. Predicting imports nothing of this.

Reading order: ``folders`` (which folder names the class), ``labelled`` (folders, CSV files and
lists → files and labels), ``work`` (what a session is to learn, and the ``Engine`` that does it),
``local`` (in this process), ``ray`` and ``ray_tasks`` (on a cluster), ``choosing`` (what a first
session tries beforehand), ``choosing_encoder`` (the same for encoders), ``session`` (all of it: a
model before, a model after, a report), ``estimating`` (its accuracy without test photos),
``findings``, ``checking`` and ``fixes`` (what is wrong with labelled photos), ``examining`` (images
with labels in, findings out).
"""
