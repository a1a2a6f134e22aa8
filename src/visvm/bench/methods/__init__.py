"""The learners that are compared, one file each; ``method`` says what a learner is.

``vis`` (the paper's method, its mixer trained by Adam) and its relatives ``lssvm``, ``vis_paper``,
``ncm``, ``ridge`` and ``vis_oracle``; then the others' methods, from the simplest: ``simplecil``,
``slda``, ``klda``, ``acil``, ``ranpac``; and ``zs_clip``, which is refused. ``sums`` and ``linear``
are what several share.
"""

from collections.abc import Callable

from visvm.bench.methods.acil import ACIL
from visvm.bench.methods.klda import KLDA
from visvm.bench.methods.lssvm import VisualLSSVM, VisualLSSVMKernel
from visvm.bench.methods.method import Method
from visvm.bench.methods.ncm import NearestClassMean
from visvm.bench.methods.ranpac import RanPACHead
from visvm.bench.methods.ridge import OneHotRidge
from visvm.bench.methods.simplecil import SimpleCIL
from visvm.bench.methods.slda import SLDA
from visvm.bench.methods.vis import Vis
from visvm.bench.methods.vis_oracle import VisOracle
from visvm.bench.methods.vis_paper import VisPaper
from visvm.bench.methods.zs_clip import zero_shot_clip

METHODS: dict[str, Callable[..., Method]] = {
    "zs-clip": zero_shot_clip,
    "simplecil": SimpleCIL,
    "slda": SLDA,
    "klda": KLDA,
    "acil": ACIL,
    "ranpac-head": RanPACHead,
    "visual-lssvm": VisualLSSVM,
    "visual-lssvm+kernel": VisualLSSVMKernel,
    "ncm": NearestClassMean,
    "ridge": OneHotRidge,
    "vis-paper": VisPaper,
    "vis": Vis,
    "vis-oracle": VisOracle,
}
"""What makes a method, by its name: called with a ``Setup`` and, by name, options."""
