"""The benchmark: the paper's protocol, its closed-form competitors and its analyses, each one command.

Reading order: ``datasets`` (what is published about them), ``cifar`` and ``loading`` (files →
images and class names), ``features`` (images → cached features), ``streams`` (classes in sessions;
what a method may see, and when), ``methods`` (the learners, one file each, in one dict),
``metrics`` (predictions → accuracy, forgetting), ``rows`` and ``environment`` (the lines of
results.jsonl), ``recipe`` (which runs make a table or a figure of the paper), ``runner`` (runs →
rows), ``estimate`` (what they will cost), ``report`` (rows → pages).
"""
