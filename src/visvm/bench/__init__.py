"""The benchmark: the paper's protocol, its closed-form rivals and its analyses, each one command.

Reading order: ``datasets`` (what is published about them), ``cifar``, ``digits`` and ``loading``
(files → images and class names), ``streams`` (classes in sessions; what a method may see, and
when), ``pictures`` (images as pixels), ``vit`` (an encoder that can be trained through), ``kept``
(what was trained, on the disk), ``features`` (images → cached features), ``texts`` (text features
of classes that have arrived), ``methods`` (the learners, one file each, in one registry),
``metrics`` (predictions → accuracy, forgetting), ``diagnosis`` and ``diagnoses`` (what class names
are to images), ``rows`` and ``environment`` (the lines of results.jsonl), ``recipe`` (what makes a
table or a figure of the paper), ``plan`` (recipe → runs), ``runner`` (runs → rows), ``estimate``
(what they will cost), ``report`` (rows → pages).
"""
