"""Invented tables of the size of a small company's: the default of every session where no folder of tables is named.

They are made as CSV text and read like files, so that built-in and loaded tables behave alike. The same seed always
makes the same text. A customer's phone number or notes may be missing; names and texts go beyond ASCII.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from random import Random

from servers.resources.workplace_assistant import analytics, calendar, email, project_management
from servers.resources.workplace_assistant import customer_relationship_manager as crm
from servers.resources.workplace_assistant.tables import Tables, read_tables

SEED = 20231130
PEOPLE = (
    "ines.varga", "oskar.lindqvist", "maelle.corbin", "tariq.benali", "hanako.ueda", "brigid.okeefe", "pavel.dostal",
    "lucia.ferrante", "nils.aaberg", "amara.nwosu", "ravi.kulkarni", "greta.holzer", "ximena.rojas", "idris.yilmaz",
    "wanda.kowalik", "teodor.petrov", "leilani.kahale", "cormac.byrne", "sunniva.dahl", "emeka.obi",
)  # fmt: skip
DOMAIN = "lindenquay.example"
SELLERS = tuple(f"{person}@{DOMAIN}" for person in PEOPLE[:5])

_FIRST_NAMES = (
    "Zoë", "Łucja", "Søren", "Añel", "Björk", "Çelik", "Dvořák", "Étienne", "Fionn", "Günter", "Håkon", "Irja",
    "Jürgen", "Kōji", "Mairéad", "Nuño",
)  # fmt: skip
_LAST_NAMES = (
    "Abara", "Brandt", "Castell", "Duarte", "Eklund", "Farkas", "Grünwald", "Hoxha", "Ibarra", "Jansons", "Kovač",
    "Lobo", "Müller",
)  # fmt: skip
_FIRMS = (
    "quarrylight", "brassfern", "tidewell", "copperloom", "northquill", "saltmeadow",
)  # fmt: skip
_TOPICS = (
    "Harbour survey", "Ledger migration", "Zürich booth", "Onboarding guide", "Pricing review", "Newsletter № 7",
    "Warehouse audit", "Search latency", "Café contract", "Spring retreat",
)  # fmt: skip
_PHRASES = (
    "the draft is ready for your comments", "we are two days behind, sorry", "numbers look fine so far ✅",
    "could you join the call on Friday?", "I attached the naïve estimate", "please hold the order until Monday",
)  # fmt: skip
_EVENTS = (
    "Planning round", "Design critique", "Budget check-in", "Retrospective", "Pairing hour", "Règlement review",
    "Supplier call", "Roadmap talk", "Interview debrief", "Safety briefing",
)  # fmt: skip
_TASK_VERBS = ("Rework", "Document", "Test", "Retire", "Translate", "Benchmark")
_TASK_THINGS = ("invoice export", "landing page", "sign-up flow", "résumé parser", "map widget", "audit log")
_CONTACTS = ("Sent a quote.", "Left a message.", "Visited the site.", "Asked for références.", "Paused until spring.")


def synthetic_tables(seed: int = SEED) -> Tables:
    """The invented tables: 20 addresses, 500 e-mails, 300 events, 1000 visits, 300 tasks, 200 customers."""
    return read_tables({table: io.StringIO(text) for table, text in synthetic_csv(seed).items()})


def synthetic_csv(seed: int = SEED) -> dict[str, str]:
    """Table name -> the CSV text that `synthetic_tables` reads."""
    return {table: _text(header, rows(Random(f"{seed}/{table}"))) for table, (header, rows) in _TABLES.items()}


def _text(header: Sequence[str] | None, rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header is not None:
        writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _ids(random: Random, count: int) -> list[str]:
    numbers = list(range(count))
    random.shuffle(numbers)
    return [f"{number:08d}" for number in numbers]


def _address(random: Random) -> str:
    return f"{random.choice(PEOPLE)}@{DOMAIN}"


def _days(random: Random, first: str, days: int, count: int) -> list[date]:
    return sorted(date.fromisoformat(first) + timedelta(days=random.randrange(days)) for _ in range(count))


def _directory_rows(random: Random) -> Iterable[Sequence[object]]:
    return [[f"{person}@{DOMAIN}"] for person in random.sample(PEOPLE, len(PEOPLE))]


def _email_rows(random: Random) -> Iterable[Sequence[object]]:
    minutes = sorted(random.sample(range(60 * 24 * 60), 500))
    for email_id, minute in zip(_ids(random, 500), minutes, strict=True):
        person, topic = random.choice(PEOPLE), random.choice(_TOPICS)
        first_name = person.partition(".")[0].capitalize()
        sent = datetime.fromisoformat("2023-10-01") + timedelta(minutes=minute)
        body = (
            f"Hello Robin,\n\non {topic}: “{random.choice(_PHRASES)}” and “{random.choice(_PHRASES)}”\n\n{first_name}"
        )
        yield email_id, "inbox", f"{person}@{DOMAIN}", topic, sent, body


def _event_rows(random: Random) -> Iterable[Sequence[object]]:
    slots = sorted(random.sample(range(150 * 9), 300))
    for event_id, slot in zip(_ids(random, 300), slots, strict=True):
        start = datetime.fromisoformat("2023-08-01 09:00") + timedelta(days=slot // 9, hours=slot % 9)
        yield event_id, random.choice(_EVENTS), _address(random), start, random.choice((30, 60, 90, 120))


def _visit_rows(random: Random) -> Iterable[Sequence[object]]:
    for day in _days(random, "2023-09-01", 91, 1000):
        visitor, views, seconds = f"{random.randrange(10_000):04d}", 1 + random.randrange(30), random.randrange(120)
        yield day, visitor, views, seconds, random.choice(analytics.TRAFFIC_SOURCES), random.random() < 0.5


def _task_rows(random: Random) -> Iterable[Sequence[object]]:
    days = _days(random, "2023-11-20", 40, 300)
    for task_id, day in zip(_ids(random, 300), days, strict=True):
        name = f"{random.choice(_TASK_VERBS)} {random.choice(_TASK_THINGS)}"
        board, stage = random.choice(project_management.BOARDS), random.choice(project_management.LISTS)
        yield task_id, name, _address(random), stage, day, board


def _customer_rows(random: Random) -> Iterable[Sequence[object]]:
    names = random.sample([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES], 200)
    for customer_id, name in zip(_ids(random, 200), names, strict=True):
        contact = datetime.fromisoformat("2023-10-01 23:59") + timedelta(days=random.randrange(61))
        phone = f"555-01{random.randrange(100):02d}" if random.random() < 0.5 else ""
        notes = f"{contact.date()}: {random.choice(_CONTACTS)}" if random.random() < 0.75 else ""
        address = f"customer{customer_id[-3:]}@{random.choice(_FIRMS)}.example"
        follow_up = contact + timedelta(days=7 + random.randrange(21))
        product, status = random.choice(crm.PRODUCTS), random.choice(crm.STATUSES)
        yield (
            customer_id, random.choice(SELLERS), name, address, phone, contact, product, status, follow_up, notes
        )  # fmt: skip


_Rows = Callable[[Random], Iterable[Sequence[object]]]
_TABLES: dict[str, tuple[Sequence[str] | None, _Rows]] = {
    "company_directory": (None, _directory_rows),
    "emails": (email.FIELDS, _email_rows),
    "calendar_events": (calendar.FIELDS, _event_rows),
    "analytics_data": (analytics.FIELDS, _visit_rows),
    "project_tasks": (project_management.FIELDS, _task_rows),
    "customers": (crm.FIELDS, _customer_rows),
}
