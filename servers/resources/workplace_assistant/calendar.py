"""The calendar."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.paging import Page, PageSize, paged
from servers.resources.workplace_assistant.tables import next_number, rows_containing, rows_where, with_row

EventId = Annotated[Any, required("Id of the event, 8 digits")]

FIELDS = ("event_id", "event_name", "participant_email", "event_start", "duration")
CHANGEABLE = FIELDS[1:]


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
        events = self._tables.calendar_events
        found = events[rows_where(events, "event_id", event_id)]
        if found.empty:
            return "Event not found."
        if field not in FIELDS:
            return "Field not found."
        return {field: found[field].iloc[0]}

    def search_events(
        self,
        query: Annotated[Any, optional("Text to find in event_name or participant_email")] = "",
        time_min: Annotated[Any, optional("Events end at or after this time, YYYY-MM-DD HH:MM:SS")] = None,
        time_max: Annotated[Any, optional("Events start at or before this time, YYYY-MM-DD HH:MM:SS")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> object:
        """Finds events by text and time, the earliest first."""
        events = self._tables.calendar_events
        named, invited = (rows_containing(events, column, query) for column in ("event_name", "participant_email"))
        found = events[named | invited]
        if time_min:
            minutes = pd.to_timedelta(pd.to_numeric(found["duration"]), unit="min")
            found = found[pd.to_datetime(found["event_start"]) + minutes >= pd.Timestamp(time_min)]
        if time_max:
            found = found[pd.to_datetime(found["event_start"]) <= pd.Timestamp(time_max)]
        found = found.sort_values("event_start", kind="stable")
        return "No events found." if found.empty else paged(found, "events", page, page_size)

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
        events = self._tables.calendar_events
        event_id = f"{next_number(events, 'event_id'):08d}"
        values = (event_id, event_name, participant_email.lower(), event_start, duration)
        self._tables.calendar_events = with_row(events, dict(zip(FIELDS, values, strict=True)))
        return event_id

    def delete_event(self, event_id: EventId = None) -> str:
        """Deletes the event with this id."""
        if not event_id:
            return "Event ID not provided."
        events = self._tables.calendar_events
        deleted = rows_where(events, "event_id", event_id)
        if not deleted.any():
            return "Event not found."
        self._tables.calendar_events = events[~deleted]
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
        events = self._tables.calendar_events.copy()
        changed = rows_where(events, "event_id", event_id)
        if not changed.any():
            return "Event not found."
        if field not in CHANGEABLE:
            return "Field not valid."
        events.loc[changed, field] = new_value.lower() if field == "participant_email" else new_value
        self._tables.calendar_events = events
        return "Event updated successfully."
