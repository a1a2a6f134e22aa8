"""What tests expect of errors: their stable code, not their words."""

import pytest

from visvm.errors import VisvmError


def refused(code, kind=VisvmError):
    """Expect an error of a kind with this code, in one line."""

    def fits(error):
        return error.code == code and len(str(error).splitlines()) == 1

    return pytest.raises(kind, check=fits)
