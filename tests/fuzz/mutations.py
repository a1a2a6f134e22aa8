"""Model files that were changed by one who knows the format: digests are right, the rest is not."""

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
    """All places in a header, each as the keys that lead there."""
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, below in pairs:
        if key != "tensors":
            found += places(below, (*path, key))
    return found


def mutate_header(header, generator):
    """Change one to three places: another value, a removal, a copy, or a number a little off."""
    for _ in range(generator.integers(1, 4)):
        every = places(header)
        if not every:
            return
        *above, last = every[generator.integers(len(every))]
        inside = header
        for key in above:
            inside = inside[key]
        old, kind = inside[last], generator.integers(8)
        if kind == 0:
            del inside[last]
        elif kind == 1 and isinstance(old, (int, float)):
            inside[last] = old * int(generator.choice([-1, 0, 2, 1000, 10**9]))
        elif kind == 2 and isinstance(inside, list):
            inside.append(copy.deepcopy(old))
        elif kind == 3 and isinstance(inside, dict):
            inside[f"{last}x"] = inside.pop(last)
        else:
            inside[last] = copy.deepcopy(VALUES[generator.integers(len(VALUES))])


def mutate_tensors(tensors, generator):
    """Change one or two tensors: their shape, their type or their numbers; or remove or add one."""
    for _ in range(generator.integers(1, 3)):
        name = sorted(tensors)[generator.integers(len(tensors))]
        old, kind = tensors[name], generator.integers(8)
        if kind == 0:
            tensors[name] = old.T.copy()
        elif kind == 1:
            tensors[name] = np.zeros((10**9, 0)) if old.ndim == 2 else np.zeros(0)
        elif kind == 2:
            tensors[name] = old[:-1].copy()
        elif kind == 3:
            tensors[name] = old.astype(np.float32)
        elif kind == 4:
            del tensors[name]
        elif kind == 5:
            tensors[f"{name}.more"] = old
        elif kind == 6:
            tensors[name] = old * float(generator.choice([0.0, -1.0, 1e-300, 1e150, 1e300]))
        elif old.size:
            flat = old.reshape(-1)
            flat[generator.integers(old.size)] = generator.choice([np.nan, np.inf, -1e9, 1e300])
        if not tensors:
            return


def mutation(seed):
    """Return the change of this seed, as ``tests.model.raw.rewrite`` takes one."""
    generator = np.random.default_rng(seed)

    def change(header, tensors):
        which = generator.integers(4)
        if which != 0:
            mutate_header(header, generator)
        if which in (0, 3):
            with np.errstate(all="ignore"):
                mutate_tensors(tensors, generator)

    return change


def damage(content, seed):
    """Return the bytes of a file with some flipped, removed, doubled or cut off."""
    generator, content = np.random.default_rng(seed), bytearray(content)
    for _ in range(generator.integers(1, 9)):
        if not content:
            break
        place, kind = int(generator.integers(len(content))), generator.integers(5)
        if kind == 0:
            del content[place:]
        elif kind == 1:
            content[place : place + 4] = b"\xff\xff\xff\xff"
        elif kind == 2:
            content[place:place] = content[place : place + int(generator.integers(64))]
        else:
            content[place] = int(generator.integers(256))
    return bytes(content)
