"""HTTP and the web page: ``visvm serve`` (extra ``serve``).

Reading order: ``limits`` (what a request may ask for), ``problems`` (errors as RFC 9457 problems),
``decoder`` and ``decoding`` (images → pixels, in processes that can be killed), ``forms`` and
``uploads`` (requests → images and labels), ``encoding`` (one encoder for all requests), ``store``
(the served model, in memory and on disk), ``jobs`` (one change at a time), ``core`` (what the
routes share), ``schemas`` (what goes over the wire), ``wire`` (forms and answers of the routes),
``connections`` (how long a client may take), ``gate`` (who may ask), ``routes``, ``app`` (all of it
as one application), ``server`` (started). The browser gets ``page/``.
"""
