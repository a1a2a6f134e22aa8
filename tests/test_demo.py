import io
import re

from visvm import demo


def test_the_demo_shows_one_head_that_remembers_and_one_that_forgets():
    out = io.StringIO()
    demo.run(out)
    rows = re.findall(r"^ +(\d) +0 to (\d) +([\d.]+)% +([\d.]+)%", out.getvalue(), re.MULTILINE)
    assert [(int(session), int(last)) for session, last, *_ in rows] == [(1, 1), (2, 3), (3, 5), (4, 7), (5, 9)]
    ours, theirs = ([float(row[column]) for row in rows] for column in (2, 3))
    assert min(ours) > 95
    assert theirs[-1] < 40
