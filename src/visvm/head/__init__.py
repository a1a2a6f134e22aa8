"""Layer features → scores, with numpy and SciPy only; the estimators also need scikit-learn.

Reading order, as the data flows: ``fusion`` (layers → fused feature), ``lift`` (that and
the kernel map as one frozen step → lifted), ``statistics`` and ``scatter`` (lifted → sums),
``solver`` (sums → coefficients), ``selection`` and ``settle`` (what the base session decides),
``evidence`` (sums → λ anew), ``head`` (all of these as one frozen value), ``incremental`` and
``estimators`` (its scikit-learn shells), ``calibration`` (scores → probabilities),
``nearness`` (sums and features → how near each class is), ``familiarity`` (that and scores →
whether an image shows any class learned), ``doubts`` (that or scores → which labels look wrong),
``suggest`` (scores and sums → what to label next). Below them are
``products`` (linear algebra), ``memory`` (what a session will take) and ``checks`` (of what comes
in).
"""
