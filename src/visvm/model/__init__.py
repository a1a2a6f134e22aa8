"""What is remembered: a model as one frozen value, its changes and its file.

Reading order: ``formats`` (numbers and cells as text), ``labels`` (what a class may be called),
``estimate`` (accuracy without test photos), ``notebook`` (tables in a notebook), ``results`` (what
people get: answers, evaluations, reports), ``levels`` (which classes form groups), ``events``
(changes that are no sessions), ``state`` (the ``Model``), ``container`` (a safetensors file with a
header), ``undo`` (the file before the last change), ``header`` and ``checks`` (what must hold in
one), ``tensors`` and ``file`` (a model ↔ such a file), ``sites`` (sums that travel), ``changes`` (a
model → another one), ``holder`` (what has a model), ``merging`` (sums of others in a model),
``journal`` (half a session on disk), ``over_time`` (videos → answers), ``portable`` (a model → an
ONNX file), ``card`` and ``sharing`` (what hubs show of it), ``masks``, ``rounds`` and ``masked``
(sums of which a collector sees only the total), ``exporter`` (what writes a model), ``predictor``
(a model and its encoder: images in, answers out), ``advice`` (what to label next, and what an
answer rests on).
"""
