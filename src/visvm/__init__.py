"""Visual Incremental SVM: learn to recognise images class by class, without forgetting.

Reading order, which is the order in which data flow: ``errors`` and ``progress`` (what everything
else uses), ``encoders`` (images → layer features), ``head`` (layer features → scores), ``model``
(what is remembered, and its file), ``learning`` (files and labels → sums), ``image_classifier``
(images in, labels out), ``bench`` (the benchmark), ``service`` (HTTP and the web page), ``cli``
(the command line). Each package's docstring gives its own reading order.

Public names are imported on first use, so that ``visvm --help`` need not wait for scikit-learn.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
