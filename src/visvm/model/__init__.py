"""What is remembered.

Reading order: ``labels`` and ``results`` (what people give and get), ``state`` (a model as one
frozen value), ``container`` (bytes, locks and digests) and ``file`` (a model ↔ its file),
``sites`` (sums that travel), ``changes`` (Model → Model), ``journal`` (a session on disk),
``predictor`` (images in, answers out).
"""
