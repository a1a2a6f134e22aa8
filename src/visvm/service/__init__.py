"""HTTP and the web page: ``visvm serve`` (extra ``serve``).

Reading order: ``limits`` (what a request may ask for), ``problems`` (errors as RFC 9457 has them),
``forms`` and ``uploads`` (requests → images), ``encoding`` (one encoder for all requests, in
batches), ``store`` (the model that is served, and how it changes on disk), ``jobs`` (one change at
a time), ``core`` (what the endpoints share), ``schemas`` (what goes over the wire), ``gate`` (who
may ask, and what is noted of it), ``app`` (the endpoints), ``server`` (all of it, started).
``page/`` is what the browser gets.
"""
