"""Rows of results as a benchmark would write them: a few by hand, or a whole made-up folder."""

import msgspec
import numpy as np
from msgspec.structs import replace

from visvm.bench.rows import FILE_NAME, Row, Run

ENVIRONMENT = {
    "visvm": "0.3.0",
    "python": "3.11.2",
    "numpy": "2.1.0",
    "blas": ["openblas 0.3.27"],
    "threads": 2,
    "cpu": "a CPU",
}


def make_run(method="vis", **changes):
    return Run(
        **{
            "dataset": "cub200",
            "data_digest": "d" * 64,
            "encoder": "dinov2-s14",
            "weights_digest": "0cd026c8" * 8,
            "transform": "squash",
            "transform_key": f"{changes.get('transform', 'squash')}-224",
            "protocol": "B0 Inc2",
            "class_order_seed": 1993,
            "method": method,
            "revision": 1,
            **changes,
        }
    )


def make_rows(run, accuracies, groups=None, sizes=None, names=None, **changes):
    """The rows of a run from its accuracies, and from those by session; ten test images a class."""
    sizes = sizes or [2] * len(accuracies)
    names = names or [f"class {number}" for number in range(sum(sizes))]
    groups = groups or [[accuracy] * (session + 1) for session, accuracy in enumerate(accuracies)]
    rows = []
    for session, accuracy in enumerate(accuracies, start=1):
        seen, old = sum(sizes[:session]), sum(sizes[: session - 1])
        several = session > 1
        last = (
            {"confusions": [(0, 1, 3), (1, 0, 2)]}
            if session == len(accuracies)
            else {"confusions": []}
        )
        row = {
            "run": run,
            "session": session,
            "n_sessions": len(accuracies),
            "new_classes": names[old:seen],
            "session_sizes": sizes[:session],
            "n_train": 30 * sizes[session - 1],
            "n_test": 10 * seen,
            "accuracy": accuracy,
            "group_accuracy": groups[session - 1],
            "old_accuracy": accuracy if several else None,
            "new_accuracy": groups[session - 1][-1] if several else None,
            "harmonic_mean": accuracy if several else None,
            "class_correct": [round(10 * accuracy)] * seen,
            "class_counts": [10] * seen,
            "seconds": {"learn": 0.5, "predict": 0.01 * seen},
            "peak_memory": 2 * 10**8,
            "trainable_parameters": 0,
            "state_bytes": 10**6 * session,
            "choices": {"ridge": 1.0},
            "load_average": 1.0,
            "environment": ENVIRONMENT,
            "measured_at": f"2026-11-{session:02d}T10:00:00+00:00",
            "code_digest": "c0de",
            **last,
            **changes,
        }
        rows.append(Row(**row))
    return rows


def write_rows(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


METHODS = {  # final accuracy, trainable parameters, state in bytes, seconds a session
    "simplecil": (0.71, 0, 6 * 10**5, 0.02),
    "slda": (0.772, 0, 3 * 10**6, 0.4),
    "klda": (0.781, 0, 8 * 10**8, 6.0),
    "acil": (0.776, 0, 5 * 10**8, 9.0),
    "ranpac-head": (0.806, 0, 8 * 10**8, 14.0),
    "visual-lssvm": (0.779, 0, 3 * 10**6, 0.3),
    "visual-lssvm+kernel": (0.811, 0, 9 * 10**8, 4.0),
    "ncm": (0.742, 394_000, 2 * 10**7, 1.0),
    "ridge": (0.812, 394_000, 9 * 10**8, 4.5),
    "vis-paper": (0.815, 394_000, 9 * 10**8, 4.3),
    "vis": (0.8201, 394_000, 9 * 10**8, 4.4),
    "vis-oracle": (0.829, 394_000, 9 * 10**8, 30.0),
    "prompt tuning of mine": (0.74, 3_900_000, 4 * 10**6, 60.0),
    "low-rank <adapters> & more": (0.70, 150_000, 9 * 10**6, 45.0),
}


PROTOCOLS = {"B0 Inc20": [20] * 10, "B100 Inc20": [100] + [20] * 5}
ENCODERS = {
    "dinov2-s14": ("0cd026c8" * 8, 0.0),
    "weights/vit_b_16-laion400m_e32-55e67d44.pt": ("77aa01b3" * 8, -0.02),
}


class MadeUp:
    """Whole streams of made-up accuracy that look like measured ones."""

    def __init__(self, n_classes=200):
        self.names = [
            f"{number:03d}.Black-{'foo' * (number % 4)}ted Albatross" for number in range(n_classes)
        ]
        self.generator = np.random.default_rng(0)

    def rows(self, run, sizes, shift=0.0):
        final, parameters, state, seconds = METHODS[run.method]
        generator, ends = self.generator, np.cumsum(sizes)
        final = min(0.99, final + shift + 0.004 * generator.normal())
        accuracies = (
            final
            + (0.97 - final)
            * (1 - np.log1p(ends - ends[0]) / np.log1p(max(1, ends[-1] - ends[0])))
            * 0.7
        )
        groups = [
            [float(min(1, value + 0.03 * generator.normal())) for _ in ends[:session]]
            for session, value in enumerate(accuracies, 1)
        ]
        rows = make_rows(
            run, [float(value) for value in accuracies], groups, list(sizes), self.names
        )
        n = int(ends[-1])
        wrong = {
            (int(a), int((a + 1 + generator.integers(6)) % n)) for a in generator.integers(0, n, 80)
        }
        confusions = sorted(
            ((a, b, int(generator.integers(1, 5))) for a, b in wrong if a != b),
            key=lambda each: (-each[2], each),
        )
        costs = {
            "trainable_parameters": parameters,
            "state_bytes": state,
            "peak_memory": 4 * 10**8 + 2 * state,
        }
        rows[-1] = replace(rows[-1], confusions=confusions)
        timed = {"learn": seconds, "encode": 0.086}
        return [
            replace(row, **costs, seconds={**timed, "predict": 1e-4 * row.n_test * seconds**0.3})
            for row in rows
        ]


def made_up_folder(protocols=PROTOCOLS, encoders=ENCODERS, methods=tuple(METHODS)):
    """Many methods, two protocols and encoders, five orders and seeds, and a sensitivity study."""
    made = MadeUp()
    rows = []
    for encoder, (digest, shift) in encoders.items():
        for protocol, sizes in protocols.items():
            where = {"encoder": encoder, "weights_digest": digest, "protocol": protocol}
            for method in methods:
                rows += made.rows(make_run(method, **where), sizes, shift)
    sizes, where = protocols["B0 Inc20"], {"protocol": "B0 Inc20"}
    for method in ("simplecil", "acil", "ranpac-head", "visual-lssvm+kernel", "vis"):
        for seed in range(1994, 1998):
            rows += made.rows(make_run(method, class_order_seed=seed, **where), sizes)
        for seed in range(1, 5):
            rows += made.rows(make_run(method, seed=seed, **where), sizes)
    rows += made.rows(make_run("vis", split="validation", **where), sizes)
    for name, values in {
        "identity_weight": [0.0, 1e-4, 1e-3, 1e-1],
        "n_components": [3000, 6000, 12000, 20000],
    }.items():
        for value in values:
            rows += made.rows(
                make_run("vis", split="validation", options={name: value}, **where), sizes
            )
    rows += made.rows(make_run("klda", options={"n_components": 5000}, **where), sizes)
    rows += made.rows(make_run("slda", class_order_seed=1994, **where), sizes)[:4]
    return rows
