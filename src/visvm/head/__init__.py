"""Layer features → scores, with numpy and SciPy only.

Reading order: ``fusion`` (layers → fused feature), ``kernel_map`` (fused → lifted), ``statistics``
and ``scatter`` (lifted → sums), ``solver`` (sums → coefficients), ``selection`` (the base session's
choices), ``memory`` (what all that will take), ``incremental`` and ``classifier`` (the estimators),
``predictor`` (all that predicting needs of them), ``calibration`` (scores → probabilities).
``products`` is the linear algebra below, ``checks`` the checks of what comes in.
"""
