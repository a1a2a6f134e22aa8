"""Every file operation as a crash point: ``python -m tests.crash`` runs all and counts them.

``operations.py`` shows every operation by which a process changes files, ``sqlite_operations.py``
those of SQLite. ``power.py`` works out what a power cut would leave at any of them. ``commands.py``
has the commands that write, and ``campaign.py`` cuts them off everywhere and runs them again.
"""
