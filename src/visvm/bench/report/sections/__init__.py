"""What a report says: a function for each section, which returns None where it has no rows.

``overview`` says what was run and what else there is, ``accuracy`` follows the paper's main tables
and figures, ``losses`` looks at what is forgotten or confused, ``variation`` at seeds and options,
``costs`` at time and memory. ``diagnosis`` (of class names) has files of its own beside the rows.
"""

from visvm.bench.report.sections import accuracy, costs, losses, overview, variation

SECTIONS = (
    overview.what_was_run,
    accuracy.main_table,
    accuracy.curves,
    accuracy.ablation,
    accuracy.textual,
    accuracy.classifiers,
    variation.sensitivities,
    variation.class_orders,
    variation.random_features,
    accuracy.backbones,
    losses.what_is_forgotten,
    losses.old_and_new,
    overview.choices,
    costs.trade_offs,
    costs.overhead,
    losses.confused_classes,
    overview.other_runs,
)
"""In the order of the page."""
