"""The calendar."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.paging import Page, PageSize, Record, paged
from servers.resources.workplace_assistant.tables import has_id, next_number, with_row

EventId = Annotated[Any, required("Id of the event, 8 digits")]

FIELDS = ("event_id", "event_name", "participant_email", "event_start", "duration")
CHANGEABLE = FIELDS[1:]

NO_ID = "Invalid event ID format. Expected 8-digit ID."
NO_TIME = "Invalid {} format. Expected YYYY-MM-DD HH:MM:SS."


class CalendarTool(Toolkit):
    prefix = "calendar"

    def get_event_information_by_id(
        self,
        event_id: EventId = None,
        field: Annotated[Any, required("Field to return, one of: " + ", ".join(map(repr, FIELDS)))] = None,
    ) -> object:
        """Returns one field of the event with this id."""
        if not event_id:
            return "Event ID not provided."
        if not field:
            return "Field not provided."
        if not _is_id(event_id):
            return NO_ID
        if field not in FIELDS:
            return "Invalid field. Available fields are: " + ", ".join(FIELDS)
        events = self._tables.calendar_events
        found = events[events["event_id"] == event_id]
        if found.empty:
            return "Event not found."
        return {field: found[field].iloc[0]}

    def search_events(
        self,
        query: Annotated[Any, optional("Text to find in event_name or participant_email")] = "",
        time_min: Annotated[Any, optional("Events start at or after this time, YYYY-MM-DD HH:MM:SS")] = None,
        time_max: Annotated[Any, optional("Events start at or before this time, YYYY-MM-DD HH:MM:SS")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> object:
        """Finds events by text and time, the latest first."""
        if time_min and not _is_time(time_min):
            return NO_TIME.format("time_min")
        if time_max and not _is_time(time_max):
            return NO_TIME.format("time_max")
        events = self._tables.calendar_events
        texts = (events["event_name"], events["participant_email"])
        named, invited = (text.str.contains(query, case=False, na=False) for text in texts)
        found: list[Record] = events[named | invited].to_dict(orient="records")
        if time_min:
            found = [event for event in found if _start(event) >= pd.Timestamp(time_min)]
        if time_max:
            found = [event for event in found if _start(event) <= pd.Timestamp(time_max)]
        if not found:
            return "No events found."
        found.sort(key=_start, reverse=True)
        return paged(found, "events", page, page_size)

    def create_event(
        self,
        event_name: Annotated[Any, required("Name of the event")] = None,
        participant_email: Annotated[Any, required("E-mail address of the participant")] = None,
        event_start: Annotated[Any, required("Start of the event, YYYY-MM-DD HH:MM:SS")] = None,
        duration: Annotated[Any, required("Length of the event in minutes")] = None,
    ) -> str:
        """Adds an event and returns its id."""
        if not event_name:
            return "Event name not provided."
        if not participant_email:
            return "Participant email not provided."
        if not event_start:
            return "Event start not provided."
        if not duration:
            return "Event duration not provided."
        refusal = _refusal({"event_start": event_start, "duration": duration})
        if refusal:
            return refusal
        events = self._tables.calendar_events
        event_id = f"{next_number(events, 'event_id'):08d}"
        values = (event_id, event_name, participant_email.lower(), event_start, duration)
        self._tables.calendar_events = with_row(events, dict(zip(FIELDS, values, strict=True)), renumbered=False)
        return event_id

    def delete_event(self, event_id: EventId = None) -> str:
        """Deletes the event with this id."""
        if not event_id:
            return "Event ID not provided."
        if not _is_id(event_id):
            return NO_ID
        events = self._tables.calendar_events
        if not has_id(events, "event_id", event_id):
            return "Event not found."
        self._tables.calendar_events = events[events["event_id"] != event_id]
        return "Event deleted successfully."

    def update_event(
        self,
        event_id: EventId = None,
        field: Annotated[Any, required("Field to change, one of: " + ", ".join(map(repr, CHANGEABLE)))] = None,
        new_value: Annotated[Any, required("What the field shall hold")] = None,
    ) -> str:
        """Changes one field of the event with this id."""
        if not event_id or not field or not new_value:
            return "Event ID, field, or new value not provided."
        if not _is_id(event_id):
            return NO_ID
        if field not in CHANGEABLE:
            return "Invalid field. Available fields are: " + ", ".join(CHANGEABLE)
        refusal = _refusal({field: new_value})
        if refusal:
            return refusal
        events = self._tables.calendar_events.copy()
        if not has_id(events, "event_id", event_id):
            return "Event not found."
        value = new_value.lower() if field == "participant_email" else new_value
        events.loc[events["event_id"] == event_id, field] = value
        self._tables.calendar_events = events
        return "Event updated successfully."


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value.isdigit() and len(value) == 8


def _is_time(value: Any) -> bool:
    try:
        pd.Timestamp(value)
    except ValueError:
        return False
    return True


def _start(event: Record) -> pd.Timestamp:
    return pd.Timestamp(event["event_start"])


def _refusal(values: dict[str, Any]) -> str | None:
    if "event_start" in values and not _is_time(values["event_start"]):
        return NO_TIME.format("event_start")
    if "duration" in values:
        try:
            minutes = int(values["duration"])
        except ValueError:
            return "Invalid duration format. Expected a number of minutes."
        if minutes <= 0:
            return "Duration must be a positive number of minutes."
    return None
