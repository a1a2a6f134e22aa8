"""Changes and evaluations, one after another, in a thread of their own."""

import hashlib
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from visvm.errors import VisvmError
from visvm.progress import Progress
from visvm.service.problems import BusyError, Problem, problem_of, stopping

JobKind = Literal[
    "learn", "evaluate", "check", "suggest", "forget", "rename-class", "forget-class", "undo"
]
QUESTIONS = ("evaluate", "check", "suggest")
"""Jobs that change nothing, and so need only the right to read."""

State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED = ("done", "failed", "cancelled")
Task = Callable[["Job", Progress], dict[str, Any]]  # reports progress; returns the result

log = logging.getLogger("visvm.service")

_KEPT = 200  # ended jobs that clients can still ask about
_IDLE_SECONDS = 1.0


@dataclass(frozen=True)
class Asked:
    """What tells a request from others: the SHA-256 of its key, and of what it asks for."""

    key: str
    body: str

    @classmethod
    def under(cls, key: str | None, path: str, content: bytes) -> "Asked | None":
        """Return it for a request to a path; None without a key."""
        if key is None:
            return None
        body = hashlib.sha256(path.encode() + b"\0" + content)
        return cls(hashlib.sha256(key.encode()).hexdigest(), body.hexdigest())


class _CancelledError(VisvmError):
    """Raised within a job that was cancelled."""


@dataclass(eq=False)
class Job:
    """Something the service was asked to do."""

    kind: JobKind
    task: Task | None
    held: ExitStack  # closed when the job ends
    asked: Asked | None = None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))  # cannot be guessed
    state: State = "waiting"
    stage: str = ""  # what is being done
    done: int = 0  # steps of the stage
    total: int = 0
    result: dict[str, Any] | None = None  # what a job that is done did
    problem: Problem | None = None  # why a job failed
    unwanted: bool = False


class JobQueue:
    """Runs jobs in the order in which they come; calls `idle` every second while there are none."""

    def __init__(self, max_waiting: int, idle: Callable[[], None]) -> None:
        self._max_waiting = max_waiting
        self._idle = idle
        self._jobs: dict[str, Job] = {}
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="visvm-jobs", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether jobs are still run."""
        return self._thread.is_alive() and not self._closed

    @property
    def n_waiting(self) -> int:
        """How many jobs have not begun."""
        return len(self._waiting)

    def submit(self, kind: JobKind, task: Task, held: ExitStack, asked: Asked | None = None) -> Job:
        """Put a job in the queue; `held` is closed when it ends, in whatever way, or is refused.

        Raises
        ------
        BusyError
            Too many jobs wait, or the service is stopping.
        """
        with self._changed:
            # Questions need only the right to read: they must leave room for changes.
            asks = kind in QUESTIONS
            alike = sum(not asks or job.kind in QUESTIONS for job in self._waiting)
            most = max(1, self._max_waiting // 4) if asks else self._max_waiting
            if not self.alive or alike >= most:
                held.close()
                what = "questions" if asks else "changes"
                detail = f"{alike} {what} wait already. Try again in 5 seconds."
                raise BusyError(detail, 5, code="jobs-too-many") if self.alive else stopping()
            job = Job(kind, task, held, asked)
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._forget_old()
            self._changed.notify()
        return job

    def get(self, identifier: str) -> Job | None:
        """Return the job with this id, if it is known."""
        return self._jobs.get(identifier)

    def under(self, key: str) -> Job | None:
        """Return the job that was asked for under a key, if it is known."""
        with self._changed:
            jobs = (job for job in self._jobs.values() if job.asked and job.asked.key == key)
            return next(jobs, None)

    def ahead_of(self, job: Job) -> int:
        """Return how many jobs end before this one begins."""
        with self._changed:
            if job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._running is not None)

    def cancel(self, job: Job) -> None:
        """End a job at once if it waits, at its next step if it runs, not while it is written."""
        with self._changed:
            job.unwanted = True
            if job in self._waiting:
                self._waiting.remove(job)
                _end(job, "cancelled")

    def close(self) -> None:
        """Cancel everything, and wait until it has ended."""
        with self._changed:
            self._closed = True
            if self._running is not None:
                self._running.unwanted = True
            while self._waiting:
                _end(self._waiting.popleft(), "cancelled")
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(_IDLE_SECONDS)
                self._running = job = self._waiting.popleft() if self._waiting else None
            try:
                if job is None:
                    self._idle()
                else:
                    self._do(job)
            except VisvmError:
                pass  # a damaged model file: the next change says so
            except Exception:  # the outermost frame of this thread, which must go on
                log.exception("internal error")
            self._running = None

    def _do(self, job: Job) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            if job.unwanted:
                raise _CancelledError("The job was cancelled.", code="job-cancelled")
            job.stage, job.done, job.total = stage, done, total

        task, job.task = job.task, None
        job.state = "running"
        try:
            progress("beginning", 0, 1)
            assert task is not None
            job.result = task(job, progress)
        except _CancelledError:
            _end(job, "cancelled")
        except Exception as error:  # noqa: BLE001 - the outermost frame of a job
            job.problem = problem_of(error)
            _end(job, "failed")
        else:
            _end(job, "done")

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.state in ENDED]
        for job in ended[: max(0, len(self._jobs) - _KEPT)]:
            del self._jobs[job.id]


def _end(job: Job, state: State) -> None:
    job.task = None
    job.held.close()
    job.state = state
