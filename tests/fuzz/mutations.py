"""What is done to a file: by one who knows its format and signs it again, or by chance.

Every change is an action with a name, so that the corpus can be seen to have all of them.
"""

import copy

import numpy as np

VALUES = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63),
    10**30,
    -(10**30),
    0.5,
    -0.0,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "x",
    "auto",
    "thin",
    "dense",
    "0" * 16,
    "\x1b[2J\u202e\n",
    "\ud800",
    "z" * 5000,
    "owner/model",
    "../../etc/passwd",
    [],
    {},
    [None],
    [[[[[]]]]],
    [1, 2, 3],
    ["a", "b", "c"],
    {"a": {"b": [1]}},
    list(range(500)),
)


def places(value, path=()):
    """All places in a document, each as the keys that lead there."""
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, below in pairs:
        if key != "tensors":
            found += places(below, (*path, key))
    return found


# Documents: each action gets the list or dict, and the place in it


def _remove(inside, last, generator):
    del inside[last]


def _scale(inside, last, generator):
    if not isinstance(inside[last], (int, float)):
        return _exchange(inside, last, generator)
    inside[last] *= int(generator.choice([-1, 0, 2, 1000, 10**9]))
    return None


def _repeat(inside, last, generator):
    if not isinstance(inside, list):
        return _exchange(inside, last, generator)
    inside.append(copy.deepcopy(inside[last]))
    return None


def _rename(inside, last, generator):
    if not isinstance(inside, dict):
        return _exchange(inside, last, generator)
    inside[f"{last}x"] = inside.pop(last)
    return None


def _exchange(inside, last, generator):
    inside[last] = copy.deepcopy(VALUES[generator.integers(len(VALUES))])


DOCUMENT = (_remove, _scale, _repeat, _rename, _exchange, _exchange, _exchange, _exchange)


def mutate_document(document, generator):
    """Change one to three places of a document; returns the names of what was done."""
    done = []
    for _ in range(generator.integers(1, 4)):
        every = places(document)
        if not every:
            break
        *above, last = every[generator.integers(len(every))]
        inside = document
        for key in above:
            inside = inside[key]
        action = DOCUMENT[generator.integers(len(DOCUMENT))]
        action(inside, last, generator)
        done.append(action.__name__)
    return done


# Tensors: each action gets all of them, and the name of one


def _transpose(tensors, name, generator):
    tensors[name] = tensors[name].T.copy()


def _empty(tensors, name, generator):
    tensors[name] = np.zeros((10**9, 0)) if tensors[name].ndim == 2 else np.zeros(0)


def _shorten(tensors, name, generator):
    tensors[name] = tensors[name][:-1].copy()


def _narrow(tensors, name, generator):
    tensors[name] = tensors[name].astype(np.float32)


def _drop(tensors, name, generator):
    del tensors[name]


def _add(tensors, name, generator):
    tensors[f"{name}.more"] = tensors[name]


def _multiply(tensors, name, generator):
    tensors[name] = tensors[name] * float(generator.choice([0.0, -1.0, 1e-300, 1e150, 1e300]))


def _spoil(tensors, name, generator):
    if tensors[name].size:
        flat = tensors[name].reshape(-1)
        flat[generator.integers(flat.size)] = generator.choice([np.nan, np.inf, -1e9, 1e300])


TENSORS = (_transpose, _empty, _shorten, _narrow, _drop, _add, _multiply, _spoil)


def mutate_tensors(tensors, generator):
    """Change one or two tensors; returns the names of what was done."""
    done = []
    for _ in range(generator.integers(1, 3)):
        if not tensors:
            break
        name = sorted(tensors)[generator.integers(len(tensors))]
        action = TENSORS[generator.integers(len(TENSORS))]
        action(tensors, name, generator)
        done.append(action.__name__)
    return done


def mutation(generator, done):
    """Return a change as ``tests.model.raw.rewrite`` takes one; it notes in `done` what it does."""

    def change(header, tensors):
        which = generator.integers(4)
        if which != 0:
            done.extend(mutate_document(header, generator))
        if which in (0, 3):
            with np.errstate(all="ignore"):
                done.extend(mutate_tensors(tensors, generator))

    return change


# Bytes: each action gets all of them, and a place


def _cut(content, place, generator):
    del content[place:]


def _raise(content, place, generator):
    content[place : place + 4] = b"\xff\xff\xff\xff"


def _double(content, place, generator):
    content[place:place] = content[place : place + int(generator.integers(64))]


def _flip(content, place, generator):
    content[place] = int(generator.integers(256))


BYTES = (_cut, _raise, _double, _flip, _flip)


def damage(content, generator, done):
    """Return the bytes of a file with some changed; notes in `done` what was done."""
    content = bytearray(content)
    for _ in range(generator.integers(1, 9)):
        if not content:
            break
        place = int(generator.integers(len(content)))
        action = BYTES[generator.integers(len(BYTES))]
        action(content, place, generator)
        done.append(action.__name__)
    return bytes(content)


ACTIONS = {action.__name__ for action in (*DOCUMENT, *TENSORS, *BYTES)}
