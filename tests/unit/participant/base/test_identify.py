"""What a call says of itself, and what garbage is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gymckpt.errors import InvalidField
from gymckpt.participant import Call, Episode, identify

R1 = Episode("r", 1)


def scope(path: str = "/add", session: Any = None, **headers: str) -> dict[str, Any]:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    found: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "headers": raw}
    return found | ({"session": session} if session is not None else {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (scope(), Call("POST", "/add")),
        (scope(x_gymckpt_episode="r-a1"), Call("POST", "/add", R1)),
        (scope("/ng-rollout/r-a1/v1/add"), Call("POST", "/v1/add", R1)),
        (scope("/ng-rollout/r-a1/add", x_gymckpt_episode="r-a1"), Call("POST", "/add", R1)),
        (scope("/ng-rollout/r"), Call("POST", "", Episode("r"))),
        (scope("/ng-rollout/r-a1/training-token-capture/verify"), Call("POST", "/verify", R1)),
        (scope(x_gymckpt_session="s"), Call("POST", "/add", session="s")),
        (scope(session={"session_id": "c"}, cookie="x=y"), Call("POST", "/add", session="c")),
        (scope(session={"session_id": "c"}), Call("POST", "/add", session="c", session_is_new=True)),
        (scope(session={"session_id": "c"}, x_gymckpt_session="s"), Call("POST", "/add", session="s")),
        (scope(session={}), Call("POST", "/add")),
        (scope(x_gymckpt_request_id="call 7"), Call("POST", "/add", request_id="call 7")),
        (scope(x_gymckpt_within="r-a1"), Call("POST", "/add", within=R1)),
        (scope(x_gymckpt_continue="1"), Call("POST", "/add", continues=True)),
        (scope(x_gymckpt_continue="0", x_other="\xff"), Call("POST", "/add")),
    ],
    ids=range(15),
)
def test_headers_prefix_and_cookie_say_who_calls(given: dict[str, Any], expected: Call) -> None:
    assert identify(given) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (scope(x_gymckpt_episode=""), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="../../etc"), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="r\x00"), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="\xff\xfe"), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="r" * 129), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="r-a9999999"), "x-gymckpt-episode"),
        (scope(x_gymckpt_episode="r-a1-a2"), "x-gymckpt-episode"),
        (scope(x_gymckpt_within="-"), "x-gymckpt-within"),
        (scope(x_gymckpt_continue="yes"), "x-gymckpt-continue"),
        (scope(x_gymckpt_session=""), None),
        (scope(x_gymckpt_session="s" * 257), "x-gymckpt-session"),
        (scope(session={"session_id": 7}), "x-gymckpt-session"),
        (scope(x_gymckpt_request_id=""), "x-gymckpt-request-id"),
        (scope(x_gymckpt_request_id="s" * 257), "x-gymckpt-request-id"),
        (scope("/ng-rollout//add"), "path prefix"),
        (scope("/ng-rollout/r-a1/add", x_gymckpt_episode="r-a2"), "x-gymckpt-episode"),
    ],
    ids=range(16),
)
def test_garbage_is_refused_and_the_header_named(given: dict[str, Any], field: str | None) -> None:
    """X20, X21"""
    if field is None:
        assert identify(given).session is None
        return
    with pytest.raises(InvalidField) as refused:
        identify(given)
    assert refused.value.field == field


def test_a_header_that_comes_twice_with_two_values_is_refused() -> None:
    """X20"""
    given = scope(x_gymckpt_episode="r")
    given["headers"].append((b"x-gymckpt-episode", b"r"))
    assert identify(given).episode == Episode("r")
    given["headers"].append((b"x-gymckpt-episode", b"s"))
    with pytest.raises(InvalidField, match="says both 'r' and 's'"):
        identify(given)
