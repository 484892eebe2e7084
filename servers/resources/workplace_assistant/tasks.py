"""Built-in tasks over the invented tables, as rows of the shape that a collector reads.

A recipe looks rows up in the tables and says in one sentence what to do with them; each recipe is used several times
with other rows. Chance comes from a generator seeded by the name of the recipe.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pandas as pd

from servers.resources.workplace_assistant import analytics, project_management
from servers.resources.workplace_assistant import customer_relationship_manager as crm
from servers.resources.workplace_assistant.tables import NOW, Tables
from servers.resources.workplace_assistant.tools import schemas

TASKS_PER_RECIPE = 4
SYSTEM_PROMPT = (
    f"The date and time now are {NOW} (a Thursday). Keep them in mind when a request speaks of dates. "
    "Meetings lie between 9:00 and 18:00."
)

Change = tuple[str, dict[str, Any]]
Recipe = Callable[[Tables, Random], tuple[str, list[Change]]]


def builtin_tasks(tables: Tables) -> list[dict[str, Any]]:
    """The tasks over `tables` (meant: `synthetic_tables()`): always the same rows in the same order."""
    tools = schemas()
    of_recipe = [
        [(category, request, changes) for request, changes in _different(recipe, tables)]
        for category, recipe in _RECIPES
    ]
    rounds = itertools.chain.from_iterable(zip(*of_recipe, strict=True))
    return [
        _row(number, category, request, changes, tools) for number, (category, request, changes) in enumerate(rounds)
    ]


def as_jsonl(rows: Iterable[dict[str, Any]]) -> str:
    """One row a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _row(
    number: int, category: str, request: str, changes: list[Change], tools: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": number,
        "responses_create_params": {
            "input": [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": request}],
            "tools": tools,
            "parallel_tool_calls": False,
            "temperature": 1.0,
        },
        "ground_truth": [
            {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)} for name, arguments in changes
        ],
        "category": f"workplace_assistant_{category}",
        "environment_name": "workplace_assistant",
    }


def _different(recipe: Recipe, tables: Tables) -> list[tuple[str, list[Change]]]:
    """Tasks of one recipe that ask for different things."""
    random = Random(recipe.__name__)
    by_request: dict[str, list[Change]] = {}
    while len(by_request) < TASKS_PER_RECIPE:
        request, changes = recipe(tables, random)
        by_request[request] = changes
    return list(by_request.items())


def _group(frame: pd.DataFrame, columns: list[str], random: Random) -> tuple[list[str], pd.DataFrame]:
    """Three to five rows that share their values in `columns`, and these values."""
    groups = [(key, rows) for key, rows in frame.groupby(columns, sort=True) if 3 <= len(rows) <= 5]
    key, rows = random.choice(groups)
    return [str(value) for value in key], rows


def _colleague(tables: Tables, random: Random, other_than: str = "") -> str:
    addresses = [address for address in tables.company_directory["email_address"].tolist() if address != other_than]
    return str(random.choice(addresses))


def _name(address: str) -> str:
    return address.partition(".")[0].capitalize()


def _day(random: Random) -> str:
    return str((datetime.fromisoformat(NOW) + timedelta(days=1 + random.randrange(20))).date())


def _latest_from(tables: Tables, sender: str, count: int) -> list[str]:
    emails = tables.emails[tables.emails["sender/recipient"] == sender]
    return [str(email_id) for email_id in emails.sort_values("sent_datetime", ascending=False)["email_id"][:count]]


def _delete_emails(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    (sender, subject), rows = _group(tables.emails, ["sender/recipient", "subject"], random)
    changes: list[Change] = [("email_delete_email", {"email_id": email_id}) for email_id in rows["email_id"]]
    return f"Delete everything that {_name(sender)} wrote me about “{subject}”.", changes


def _reply_emails(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    sender = _colleague(tables, random)
    body = f"Merci {_name(sender)}, I will look at it on {_day(random)}."
    changes: list[Change] = [
        ("email_reply_email", {"email_id": email_id, "body": body}) for email_id in _latest_from(tables, sender, 3)
    ]
    return f"Reply to the last three emails from {_name(sender)}, newest first, with “{body}”.", changes


def _forward_emails(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    sender = _colleague(tables, random)
    recipient = _colleague(tables, random, other_than=sender)
    changes: list[Change] = [
        ("email_forward_email", {"email_id": email_id, "recipient": recipient})
        for email_id in _latest_from(tables, sender, 3)
    ]
    return f"Forward {_name(sender)}'s last three emails, newest first, to {_name(recipient)}.", changes


def _create_events(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    person, day = _colleague(tables, random), _day(random)
    hours = sorted(random.sample(range(9, 17), 3))
    event = {"event_name": "Déjà-vu workshop", "participant_email": person, "duration": "30"}
    changes: list[Change] = [
        ("calendar_create_event", event | {"event_start": f"{day} {hour:02d}:00:00"}) for hour in hours
    ]
    times = ", ".join(f"{hour}:00" for hour in hours)
    return f"Book a 30 minute “Déjà-vu workshop” with {_name(person)} on {day} at {times}, in this order.", changes


def _move_events(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    person = _colleague(tables, random)
    events = tables.calendar_events
    coming = events[(events["participant_email"] == person) & (events["event_start"] > NOW)][:3]
    other = _colleague(tables, random, other_than=person)
    change = {"field": "participant_email", "new_value": other}
    changes: list[Change] = [("calendar_update_event", {"event_id": event} | change) for event in coming["event_id"]]
    changes.append(("email_send_email", {"recipient": other, "subject": "Handover", "body": "You take over, thanks!"}))
    request = f"{_name(other)} takes over my next three meetings with {_name(person)}; change the participant"
    return f"{request} and then mail {_name(other)} “You take over, thanks!” with the subject “Handover”.", changes


def _cancel_events(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    (name, person), rows = _group(tables.calendar_events, ["event_name", "participant_email"], random)
    changes: list[Change] = [("calendar_delete_event", {"event_id": event_id}) for event_id in rows["event_id"]]
    return f"Remove every “{name}” with {_name(person)} from my calendar, past ones too.", changes


def _plots(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    first, last = sorted(random.sample(sorted(set(tables.analytics_data["date_of_visit"])), 2))
    values = random.sample(analytics.PLOT_VALUES, 3)
    kind = random.choice(analytics.PLOT_TYPES)
    days = {"time_min": first, "time_max": last}
    changes: list[Change] = [
        ("analytics_create_plot", days | {"value_to_plot": value, "plot_type": kind}) for value in values
    ]
    return f"Make {kind} plots of {', '.join(values)}, one each in this order, from {first} to {last}.", changes


def _advance_tasks(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    (person, stage), rows = _group(tables.project_tasks, ["assigned_to_email", "list_name"], random)
    target = random.choice([name for name in project_management.LISTS if name != stage])
    change = {"field": "list_name", "new_value": target}
    changes: list[Change] = [
        ("project_management_update_task", {"task_id": task_id} | change) for task_id in rows["task_id"]
    ]
    return f"Move all tasks of {_name(person)} that are in {stage} to {target}.", changes


def _split_work(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    person, day = _colleague(tables, random), _day(random)
    task = {"assigned_to_email": person, "list_name": "Backlog", "due_date": day, "board": "Design"}
    changes: list[Change] = [
        ("project_management_create_task", task | {"task_name": f"Sketch façade, part {part}"}) for part in (1, 2, 3)
    ]
    request = f"Give {_name(person)} three backlog tasks on the Design board, due {day}"
    return f"{request}: “Sketch façade, part 1” to “part 3”, in this order.", changes


def _drop_tasks(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    (person, board), rows = _group(tables.project_tasks, ["assigned_to_email", "board"], random)
    changes: list[Change] = [("project_management_delete_task", {"task_id": task_id}) for task_id in rows["task_id"]]
    return f"{_name(person)} leaves the {board} board: delete all of {_name(person)}'s tasks there.", changes


def _reassign_customers(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    columns = ["assigned_to_email", "product_interest", "status"]
    (seller, product, status), rows = _group(tables.customers, columns, random)
    other = _colleague(tables, random, other_than=seller)
    change = {"field": "assigned_to_email", "new_value": other}
    changes: list[Change] = [
        ("customer_relationship_manager_update_customer", {"customer_id": customer_id} | change)
        for customer_id in rows["customer_id"]
    ]
    return f"Give {_name(seller)}'s customers with status {status} for {product} to {_name(other)}.", changes


def _delete_customers(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    columns = ["assigned_to_email", "product_interest", "status"]
    (seller, product, status), rows = _group(tables.customers, columns, random)
    changes: list[Change] = [
        ("customer_relationship_manager_delete_customer", {"customer_id": customer_id})
        for customer_id in rows["customer_id"]
    ]
    return f"Delete {_name(seller)}'s customers with status {status} for {product}.", changes


def _new_customer(tables: Tables, random: Random) -> tuple[str, list[Change]]:
    seller, day = _colleague(tables, random), _day(random)
    product, status = random.choice(crm.PRODUCTS), random.choice(crm.STATUSES)
    customer = {"customer_name": "Ådne Überall", "assigned_to_email": seller, "status": status}
    event = {"event_name": "Intro call", "participant_email": seller, "event_start": f"{day} 10:00:00"}
    mail = {"recipient": seller, "subject": "New customer", "body": "Ådne Überall is yours."}
    changes: list[Change] = [
        ("customer_relationship_manager_add_customer", customer | {"product_interest": product}),
        ("calendar_create_event", event | {"duration": "60"}),
        ("email_send_email", mail),
    ]
    request = (
        f"Add the customer Ådne Überall for {_name(seller)}: {product}, status {status}. Then book an hour's “Intro "
        f"call” with {_name(seller)} on {day} at 10:00, and mail “{mail['body']}” with the subject “New customer”."
    )
    return request, changes


_RECIPES: tuple[tuple[str, Recipe], ...] = (
    ("email", _delete_emails),
    ("email", _reply_emails),
    ("email", _forward_emails),
    ("calendar", _create_events),
    ("calendar", _cancel_events),
    ("analytics", _plots),
    ("project_management", _advance_tasks),
    ("project_management", _split_work),
    ("project_management", _drop_tasks),
    ("customer_relationship_manager", _reassign_customers),
    ("customer_relationship_manager", _delete_customers),
    ("multi_domain", _move_events),
    ("multi_domain", _new_customer),
)
