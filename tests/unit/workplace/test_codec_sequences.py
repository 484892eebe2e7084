"""Random sessions, exported and imported after every call, go on exactly as they would have."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from servers.resources.workplace_assistant.analytics import PLOT_TYPES, PLOT_VALUES, TRAFFIC_SOURCES
from servers.resources.workplace_assistant.codec import PartsCache, decode, encode
from servers.resources.workplace_assistant.customer_relationship_manager import CHANGEABLE, PRODUCTS, STATUSES
from servers.resources.workplace_assistant.project_management import BOARDS, LISTS
from servers.resources.workplace_assistant.synthetic import synthetic_tables
from servers.resources.workplace_assistant.tables import Tables
from servers.resources.workplace_assistant.tools import TOOLS, call
from tests.unit.workplace.sameness import differences

CALLS = 40
ROWS = 70
"""Two blocks of rows: enough for gaps, moves between blocks and a last block that is not full."""

Call = tuple[str, dict[str, Any]]


def small_tables() -> Tables:
    tables = synthetic_tables()
    return Tables(**{name: frame.iloc[:ROWS] for name, frame in tables.items()})


SMALL = small_tables()
IDS = {
    "email_id": [*SMALL.emails["email_id"], "500", "501"],
    "event_id": [*SMALL.calendar_events["event_id"], "00000300"],
    "task_id": [*SMALL.project_tasks["task_id"], "00000300"],
    "customer_id": [*SMALL.customers["customer_id"], "00000200", "00000201"],
    "visitor_id": [*SMALL.analytics_data["visitor_id"]],
    "field": [
        *CHANGEABLE,
        "event_name",
        "duration",
        "event_start",
        "task_name",
        "board",
        "list_name",
        "body",
        "subject",
    ],
    "value_to_plot": [*PLOT_VALUES],
    "plot_type": [*PLOT_TYPES],
    "traffic_source": [*TRAFFIC_SOURCES],
    "status": [*STATUSES],
    "product_interest": [*PRODUCTS],
    "list_name": [*LISTS],
    "board": [*BOARDS],
    "page": [1, 2, 0],
    "page_size": [1, 5, 0],
}
TEXTS = [
    "a", "", "Ø ✅", "e\u0301", "30", "2023-10-15", "2023-12-01 10:00:00", "Ines.Varga@lindenquay.example", "\ud83d", "[", "None", *STATUSES[:2],
]  # fmt: skip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def values(parameter: str) -> st.SearchStrategy[Any]:
    """Mostly what the tool can use; sometimes text of any kind; now and then any JSON value."""
    usable: st.SearchStrategy[Any] = st.sampled_from(IDS.get(parameter, TEXTS))
    return st.one_of(usable, usable, usable, usable, st.sampled_from(TEXTS), json_values)


def arguments(name: str) -> st.SearchStrategy[dict[str, Any]]:
    toolkit, method = TOOLS[name]
    parameters = toolkit.schema(method)["parameters"]
    required = {key: values(key) for key in parameters["required"]}
    optional = {key: values(key) for key in parameters["properties"] if key not in required}
    # Ill-formed calls are well covered by values; leaving out required arguments as well would hide the tools.
    return st.fixed_dictionaries(required, optional=optional | {"nope": st.just(1)} if not required else optional)


calls = st.sampled_from([*TOOLS]).flatmap(lambda name: st.tuples(st.just(name), arguments(name)))


def as_answered(answer: Any) -> str:
    """An answer as the bytes of an HTTP reply would show it: 1, 1.0 and true differ."""
    return json.dumps(answer)


# Shrinking 40 calls over tables takes minutes, and a failure names its first differing answer anyway.
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(calls, min_size=CALLS, max_size=CALLS))
def test_a_session_restored_after_every_call_answers_and_ends_like_one_that_never_was(session: list[Call]) -> None:
    """X14, X15, R07: export and import at every cut change nothing that can be seen."""
    plain, restored, cache = SMALL.copy(), SMALL.copy(), PartsCache()
    for name, given_arguments in session:
        assert as_answered(call(restored, name, given_arguments)) == as_answered(call(plain, name, given_arguments))
        parts = encode(restored)
        restored = decode(parts)
        assert encode(restored) == parts
        assert encode(plain, cache) == parts
    assert differences(restored, plain) == []


SCRIPT: list[Call] = [
    ("email_delete_email", {"email_id": SMALL.emails["email_id"].iloc[5]}),
    ("email_reply_email", {"email_id": SMALL.emails["email_id"].iloc[6], "body": "née ✅"}),
    ("customer_relationship_manager_delete_customer", {"customer_id": SMALL.customers["customer_id"].iloc[0]}),
    (
        "customer_relationship_manager_add_customer",
        {"customer_name": {"given": "Edda"}, "assigned_to_email": "a@b", "status": "Lead"},
    ),
    ("customer_relationship_manager_search_customers", {"customer_email": "example"}),
    ("customer_relationship_manager_search_customers", {"customer_name": "a"}),
    ("customer_relationship_manager_search_customers", {"status": "Lead", "page_size": 50}),
    ("customer_relationship_manager_search_customers", {"follow_up_by_min": "2023-10-01"}),
    ("analytics_get_average_session_duration", {}),
    ("analytics_get_visitor_information_by_id", {"visitor_id": SMALL.analytics_data["visitor_id"].iloc[1]}),
    ("analytics_create_plot", {"time_min": "a", "time_max": "b", "value_to_plot": "total_visits", "plot_type": "bar"}),
    ("calendar_create_event", {"event_name": "x", "participant_email": "p", "event_start": 5, "duration": 30}),
    ("calendar_search_events", {"query": "x", "time_min": "2023-10-01T00:00Z"}),
    ("calendar_update_event", {"event_id": "00000300", "field": "event_name", "new_value": ["60"]}),
    ("calendar_search_events", {"query": ""}),
]


def test_a_restore_at_each_cut_of_one_session_gives_the_same_rest() -> None:
    """X14, P03: at every cut all later answers and the final tables are those of the uninterrupted session."""
    plain = SMALL.copy()
    answers = [as_answered(call(plain, name, given_arguments)) for name, given_arguments in SCRIPT]
    assert sum(answer.startswith('"Error') for answer in answers) >= 3
    for cut in range(len(SCRIPT)):
        live = SMALL.copy()
        for name, given_arguments in SCRIPT[:cut]:
            call(live, name, given_arguments)
        restored = decode(encode(live))
        rest = [as_answered(call(restored, name, given_arguments)) for name, given_arguments in SCRIPT[cut:]]
        assert rest == answers[cut:]
        assert differences(restored, plain) == []
