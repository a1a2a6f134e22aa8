"""Changes and evaluations, one after the other, in a thread of their own."""

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
from visvm.service.problems import BusyError, Problem, problem_of

Kind = Literal["learn", "evaluate", "forget", "rename-class", "forget-class"]
State = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED = ("done", "failed", "cancelled")
Work = Callable[[Progress], dict[str, Any]]

log = logging.getLogger("visvm.service")

_KEPT = 200  # jobs that can be asked about once they have ended
_IDLE_SECONDS = 1.0
_RETRY_SECONDS = 5


class _CancelledError(VisvmError):
    """Raised within a job that is to end."""


@dataclass(eq=False)
class Job:
    """Something the service was asked to do.

    Attributes
    ----------
    id : str
        Which cannot be guessed.
    kind, state : str
    stage : str
        What is being done, with `done` steps of `total`.
    result : dict or None
        Once it is done.
    problem : Problem or None
        Once it has failed.
    """

    kind: Kind
    work: Work | None
    held: ExitStack
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: State = "waiting"
    stage: str = ""
    done: int = 0
    total: int = 0
    result: dict[str, Any] | None = None
    problem: Problem | None = None
    unwanted: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in ENDED


class JobQueue:
    """Runs jobs in the order in which they came.

    Parameters
    ----------
    max_waiting : int
    idle : callable
        Called now and then while there is nothing to do.
    """

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

    def submit(self, kind: Kind, work: Work, held: ExitStack) -> Job:
        """Have something done.

        Parameters
        ----------
        kind : str
        work : callable
            Told where to report its progress; gives the result.
        held : ExitStack
            What is to be closed when the job ends, however it ends.

        Raises
        ------
        BusyError
            Too many jobs wait.
        """
        with self._changed:
            # Evaluations, which whoever may only read can ask for, must leave room for changes.
            alike = sum(kind != "evaluate" or job.kind == kind for job in self._waiting)
            most = self._max_waiting if kind != "evaluate" else max(1, self._max_waiting // 4)
            if not self.alive or alike >= most:
                held.close()
                what = "evaluations" if kind == "evaluate" else "changes"
                told = (
                    f"at most {most} {what} may wait; as many do"
                    if self.alive
                    else "the service must be running; it is stopping"
                )
                raise BusyError(f"{told}: try again in {_RETRY_SECONDS} seconds", _RETRY_SECONDS)
            job = Job(kind, work, held)
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._forget_old()
            self._changed.notify()
        return job

    def get(self, identifier: str) -> Job | None:
        """The job with this id, if it is known."""
        return self._jobs.get(identifier)

    def ahead_of(self, job: Job) -> int:
        """How many jobs end before this one begins."""
        with self._changed:
            if job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._running is not None)

    def cancel(self, job: Job) -> None:
        """End a job at once if it waits, or at its next step if it runs; one that is being written is not ended."""
        with self._changed:
            job.unwanted = True
            if job in self._waiting:
                self._waiting.remove(job)
                _end(job, "cancelled")

    def close(self) -> None:
        """Cancel everything, and wait for the end of it."""
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *([self._running] if self._running else [])):
                job.unwanted = True
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
                pass  # what is wrong with the model file is told to whoever changes it next
            except Exception:  # the outermost frame of this thread, which must go on
                log.exception("an error that is ours")
            self._running = None

    def _do(self, job: Job) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            if job.unwanted:
                raise _CancelledError("cancelled")
            job.stage, job.done, job.total = stage, done, total

        work, job.work = job.work, None
        job.state = "running"
        try:
            progress("beginning", 0, 1)
            assert work is not None
            job.result = work(progress)
        except _CancelledError:
            _end(job, "cancelled")
        except Exception as error:  # noqa: BLE001 - the outermost frame of this thread: the job tells of it
            job.problem = problem_of(error)
            _end(job, "failed")
        else:
            _end(job, "done")

    def _forget_old(self) -> None:
        ended = [job for job in self._jobs.values() if job.ended]
        for job in ended[: max(0, len(self._jobs) - _KEPT)]:
            del self._jobs[job.id]


def _end(job: Job, state: State) -> None:
    job.work = None
    job.held.close()
    job.state = state
