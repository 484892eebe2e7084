"""The mailbox."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.paging import Page, PageSize, Record, paged
from servers.resources.workplace_assistant.tables import NOW, has_id, next_number, with_row

EmailId = Annotated[Any, required("Id of the email")]
Recipient = Annotated[Any, required("E-mail address of the recipient")]
Body = Annotated[Any, required("Text of the email")]

FIELDS = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
SEARCHED = ("subject", "body", "sender/recipient")


class EmailTool(Toolkit):
    prefix = "email"

    def get_email_information_by_id(
        self,
        email_id: EmailId = None,
        field: Annotated[Any, required("Field to return, one of: " + ", ".join(map(repr, FIELDS)))] = None,
    ) -> object:
        """Returns one field of the email with this id."""
        if not email_id:
            return "Email ID not provided."
        if not field:
            return "Field not provided."
        return _told("retrieving email information", lambda: self._field(email_id, field))

    def search_emails(
        self,
        query: Annotated[Any, optional("Words that must all appear in subject, body or sender/recipient")] = "",
        date_min: Annotated[Any, optional("First day of the sent date (inclusive), as YYYY-MM-DD")] = None,
        date_max: Annotated[Any, optional("Last day of the sent date (inclusive), as YYYY-MM-DD")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> object:
        """Finds the emails in which every word of the query appears, the latest first."""
        return _told("searching emails", lambda: self._search(query, date_min, date_max, page, page_size))

    def send_email(
        self,
        recipient: Recipient = None,
        subject: Annotated[Any, required("Subject line")] = None,
        body: Body = None,
    ) -> object:
        """Sends an email."""
        if not recipient or not subject or not body:
            return "Recipient, subject, or body not provided."
        if not _is_address(recipient):
            return "Invalid recipient email address."
        return _told("sending email", lambda: self._send(recipient, subject, body))

    def delete_email(self, email_id: EmailId = None) -> object:
        """Deletes the email with this id."""
        if not email_id:
            return "Email ID not provided."
        return _told("deleting email", lambda: self._delete(email_id))

    def forward_email(self, email_id: EmailId = None, recipient: Recipient = None) -> object:
        """Sends the email with this id on to another recipient."""
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if not _is_address(recipient):
            return "Invalid recipient email address."
        return _told("forwarding email", lambda: self._forward(email_id, recipient))

    def reply_email(self, email_id: EmailId = None, body: Body = None) -> object:
        """Answers the sender of the email with this id."""
        if not email_id or not body:
            return "Email ID or body not provided."
        return _told("replying to email", lambda: self._reply(email_id, body))

    def _field(self, email_id: Any, field: Any) -> object:
        found = self._with_id(email_id)
        if found.empty:
            return "Email not found."
        if field not in found.columns:
            return f"Field '{field}' not found. Available fields: {', '.join(FIELDS)}"
        return {field: found[field].iloc[0]}

    def _search(self, query: Any, date_min: Any, date_max: Any, page: Any, page_size: Any) -> object:
        words = query.lower().split()
        found = self._tables.emails
        found = _those(found, lambda email: all(word in _text(email) for word in words))
        # Mails of the same second stay in the order that the default sort of times leaves them in, which is not stable.
        found = found.sort_values("sent_datetime", ascending=False, key=pd.to_datetime)
        if date_min:
            found = _those(found, lambda email: _day(email["sent_datetime"]) >= _day(date_min))
        if date_max:
            found = _those(found, lambda email: _day(email["sent_datetime"]) <= _day(date_max))
        return paged(found.to_dict(orient="records"), "emails", page, page_size)

    def _send(self, recipient: Any, subject: Any, body: Any) -> str:
        self._add(recipient.lower(), subject, body)
        return "Email sent successfully."

    def _delete(self, email_id: Any) -> str:
        emails = self._tables.emails
        if not has_id(emails, "email_id", email_id):
            return "Email not found."
        self._tables.emails = emails[emails["email_id"] != email_id]
        return "Email deleted successfully."

    def _forward(self, email_id: Any, recipient: Any) -> str:
        if not has_id(self._tables.emails, "email_id", email_id):
            return "Email not found."
        email = self._with_id(email_id).iloc[0]
        self._add(recipient.lower(), f"FW: {email['subject']}", email["body"])
        return "Email forwarded successfully."

    def _reply(self, email_id: Any, body: Any) -> str:
        if not has_id(self._tables.emails, "email_id", email_id):
            return "Email not found."
        email = self._with_id(email_id).iloc[0]
        self._add(email["sender/recipient"], f"RE: {email['subject']}", body)
        return "Email replied successfully."

    def _with_id(self, email_id: Any) -> pd.DataFrame:
        emails = self._tables.emails
        found: pd.DataFrame = emails[emails["email_id"] == email_id]
        return found

    def _add(self, recipient: str, subject: object, body: object) -> None:
        emails = self._tables.emails
        values = (str(next_number(emails, "email_id")), "outbox", recipient, subject, NOW, body)
        self._tables.emails = with_row(emails, dict(zip(FIELDS, values, strict=True)))


def _told(doing: str, tool: Callable[[], object]) -> object:
    """What `tool` answers. A failure is told as one of `doing`, in place of the words that all other tools fail in."""
    try:
        return tool()
    except Exception as error:  # noqa: BLE001 - the caller is a language model: it is told, and may try again
        return f"Error {doing}: {error}"


def _is_address(recipient: Any) -> bool:
    return "@" in recipient and "." in recipient


def _those(emails: pd.DataFrame, wanted: Callable[[Record], bool]) -> pd.DataFrame:
    chosen = [wanted(email) for email in emails.to_dict(orient="records")]
    return emails.loc[pd.Series(chosen, index=emails.index, dtype=bool)]


def _text(email: Record) -> str:
    return " ".join(str(email[field]) for field in SEARCHED).lower()


def _day(time: Any) -> date:
    return pd.Timestamp(time).date()
