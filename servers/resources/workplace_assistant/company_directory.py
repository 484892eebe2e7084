"""The company directory: a constant list of e-mail addresses."""

from __future__ import annotations

from typing import Annotated, Any

from servers.resources.workplace_assistant.declare import Toolkit, optional


class CompanyDirectoryTool(Toolkit):
    prefix = "company_directory"

    def find_email_address(self, name: Annotated[Any, optional("All or part of the person's name")] = "") -> object:
        """Lists the e-mail addresses that contain a name, in any case."""
        if name == "":
            return "Name not provided."
        addresses = self._tables.company_directory["email_address"]
        return addresses[addresses.str.contains(name.lower())].tolist()
