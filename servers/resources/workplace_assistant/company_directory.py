"""The company directory: a constant list of e-mail addresses."""

from __future__ import annotations

from typing import Annotated, Any

from servers.resources.workplace_assistant.declare import Toolkit, optional
from servers.resources.workplace_assistant.tables import rows_containing


class CompanyDirectoryTool(Toolkit):
    prefix = "company_directory"

    def find_email_address(self, name: Annotated[Any, optional("All or part of the person's name")] = None) -> object:
        """Lists the e-mail addresses that contain a name, in any case."""
        if not name:
            return "Name not provided."
        directory = self._tables.company_directory
        return directory["email_address"][rows_containing(directory, "email_address", name)].tolist()
