"""Processes that start at once, forked off one that has imported everything.

For what a process does, and what is left when it is killed. What `visvm` imports when it starts,
and what it tells a shell, is tested with real commands.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import suppress

METHOD = "forkserver" if hasattr(os, "fork") else "spawn"
CONTEXT = multiprocessing.get_context(METHOD)
if METHOD == "forkserver":
    CONTEXT.set_forkserver_preload(
        [
            "tests.forked",
            "tests.encoders.tiny_weights",
            "tests.learning.on_workers",
            "visvm.bench.methods",
            "visvm.bench.runner",
            "visvm.cli.learn",
            "visvm.cli.main",
            "visvm.cli.serve",
            "visvm.encoders.cache",
            "visvm.encoders.onnx",
            "visvm.head.estimators",
            "visvm.image_classifier",
            "visvm.service.server",
            "uvicorn.protocols.http.httptools_impl",
        ]
    )


def _run(arguments, environment, writer, prepare):
    os.dup2(writer.fileno(), 1)
    os.dup2(writer.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["visvm", *arguments]
    # what was started in the background inherits that Ctrl+C is ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if prepare is not None:
        prepare()
    from visvm.cli.main import main

    main()


class Command:
    """`visvm` in a process of its own, with the methods of ``subprocess.Popen`` that tests use.

    Attributes
    ----------
    stdout : file
        What the command writes, errors too.
    """

    def __init__(self, *arguments, environment=None, prepare=None):
        reader, writer = CONTEXT.Pipe(duplex=False)
        given = (
            [str(each) for each in arguments],
            {**os.environ, **(environment or {})},
            writer,
            prepare,
        )
        # a daemon, so that a test that fails leaves none behind
        self._process = CONTEXT.Process(target=_run, args=given, daemon=True)
        self._process.start()
        writer.close()
        self.pid, self.stdout = (
            self._process.pid,
            os.fdopen(os.dup(reader.fileno()), encoding="utf-8"),
        )
        reader.close()

    def send_signal(self, number):
        if self.poll() is None:
            # the process that forked it may know of its end before this one does
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("visvm", timeout)
        return self.poll()
