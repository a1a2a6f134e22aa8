"""A model as one ONNX graph, from the pixels of a photo to answers, for where visvm is not.

Reading order: ``net`` (a graph that is being written), ``pixels`` (photo → what the encoder takes),
``answers`` (layer features → answers), ``precision`` (smaller weights), ``metadata`` (what the file
says of itself), ``graph`` (all of it together), ``writing`` (a file, tried before it is written),
``runtime`` (what runs it in a browser), ``web`` (a folder with a page that asks it: ``app.js``,
``answers.js``, in a worker ``runner.js``; and one that teaches: ``teach.js``, in a worker
``worker.js``, ``draw.js``, ``solve.js``, ``file.js``).
"""
