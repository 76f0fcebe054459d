from __future__ import annotations

import pytest

from sagemaker_engine.wire.errors import ValidationError
from sagemaker_engine.wire.paging import make_token, read_token

QUERY = {"NameContains": "a", "MaxResults": 5}


def test_token_carries_its_position() -> None:
    token = make_token(QUERY, [12.5, "job"])
    assert read_token({**QUERY, "NextToken": token}) == [12.5, "job"]


def test_page_size_may_change_between_pages() -> None:
    token = make_token(QUERY, 5)
    assert read_token({**QUERY, "MaxResults": 1, "NextToken": token}) == 5


def test_token_of_another_query_is_refused() -> None:
    token = make_token(QUERY, 5)
    with pytest.raises(ValidationError, match="other parameters"):
        read_token({"NameContains": "b", "NextToken": token})


@pytest.mark.parametrize("token", ["", "a", "nonsense", "WzFd", "eyJhIjoxfQ", "ü"])
def test_noise_is_refused(token: str) -> None:
    with pytest.raises(ValidationError):
        read_token({"NextToken": token})


def test_no_token_is_no_position() -> None:
    assert read_token(QUERY) is None
