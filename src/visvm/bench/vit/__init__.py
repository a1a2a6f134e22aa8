"""One vision transformer that methods may train parts in (extra ``torch``).

Reading order: ``network`` (the transformer, frozen, and the places for what is trained in it),
``modules`` (adapters, scale-shift, tokens: what is put there), ``towers`` and ``graphs`` (weights
of encoders that run in torch and in ONNX), ``trainable`` (which encoders can be trained through),
``adapted`` (an encoder with what was trained in it).
"""
