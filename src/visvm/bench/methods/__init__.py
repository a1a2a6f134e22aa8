"""The learners that are compared, one file each; ``method`` says what a learner is.

``sums`` and ``linear`` are what several share; ``text``, ``gradient``,
``gaussians`` and ``gda`` what those that lean on text do, and
``through`` and ``prompting`` what those that train through the encoder do.
"""

from importlib import import_module

from visvm.bench.methods.method import Entry

_FILES = (
    "zs_clip",
    "simplecil",
    "ncm",
    "slda",
    "klda",
    "acil",
    "ridge",
    "ranpac",
    "ranpac_petl",
    "l2p",
    "dualprompt",
    "coda_prompt",
    "lssvm",
    "vis",
    "vis_adapter",
    "vis_oracle",
    "vis_text",
    "rapf",
    "bofa",
    "engine",
    "clg_cbm",
    "proof",
)
"""A line for every file with methods, in the order of the report."""

METHODS: dict[str, Entry] = {
    entry.name: entry for file in _FILES for entry in import_module(f"{__name__}.{file}").ENTRIES
}
"""All methods by name. One's own may be added while a program runs."""
