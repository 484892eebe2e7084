"""The mailbox."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.paging import Page, PageSize, paged
from servers.resources.workplace_assistant.tables import NOW, next_number, rows_containing, rows_where, with_row

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
        found = self._find(email_id)
        if found.empty:
            return "Email not found."
        if field not in FIELDS:
            return "Field not found."
        return {field: found[field].iloc[0]}

    def search_emails(
        self,
        query: Annotated[Any, optional("Words that must all appear in subject, body or sender/recipient")] = "",
        date_min: Annotated[Any, optional("First day of the sent date (inclusive), as YYYY-MM-DD")] = None,
        date_max: Annotated[Any, optional("Last day of the sent date (inclusive), as YYYY-MM-DD")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> object:
        """Finds the emails in which every word of the query appears, the latest first."""
        emails = self._tables.emails
        matching = pd.Series(True, index=emails.index)
        for word in query.split():
            in_any = [rows_containing(emails, field, word) for field in SEARCHED]
            matching &= in_any[0] | in_any[1] | in_any[2]
        sent = emails["sent_datetime"]
        if date_min:
            matching &= sent >= date_min
        if date_max:
            matching &= sent.str.slice(0, len(date_max)) <= date_max
        found = emails[matching].sort_values("sent_datetime", ascending=False, kind="stable")
        return "No emails found." if found.empty else paged(found, "emails", page, page_size)

    def send_email(
        self,
        recipient: Recipient = None,
        subject: Annotated[Any, required("Subject line")] = None,
        body: Body = None,
    ) -> str:
        """Sends an email."""
        if not recipient or not subject or not body:
            return "Recipient, subject, or body not provided."
        if "@" not in recipient:
            return "Recipient is not an email address."
        self._add(recipient.lower(), subject, body)
        return "Email sent successfully."

    def delete_email(self, email_id: EmailId = None) -> str:
        """Deletes the email with this id."""
        if not email_id:
            return "Email ID not provided."
        emails = self._tables.emails
        deleted = rows_where(emails, "email_id", email_id)
        if not deleted.any():
            return "Email not found."
        self._tables.emails = emails[~deleted]
        return "Email deleted successfully."

    def forward_email(self, email_id: EmailId = None, recipient: Recipient = None) -> str:
        """Sends the email with this id on to another recipient."""
        if not email_id or not recipient:
            return "Email ID or recipient not provided."
        if "@" not in recipient:
            return "Recipient is not an email address."
        found = self._find(email_id)
        if found.empty:
            return "Email not found."
        email = found.iloc[0]
        self._add(recipient.lower(), f"Fwd: {email['subject']}", email["body"])
        return "Email forwarded successfully."

    def reply_email(self, email_id: EmailId = None, body: Body = None) -> str:
        """Answers the sender of the email with this id."""
        if not email_id or not body:
            return "Email ID or body not provided."
        found = self._find(email_id)
        if found.empty:
            return "Email not found."
        email = found.iloc[0]
        self._add(email["sender/recipient"], f"Re: {email['subject']}", body)
        return "Email replied successfully."

    def _find(self, email_id: object) -> pd.DataFrame:
        return self._tables.emails[rows_where(self._tables.emails, "email_id", email_id)]

    def _add(self, recipient: str, subject: object, body: object) -> None:
        emails = self._tables.emails
        values = (str(next_number(emails, "email_id")), "outbox", recipient, subject, NOW, body)
        self._tables.emails = with_row(emails, dict(zip(FIELDS, values, strict=True)))
