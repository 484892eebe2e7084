"""The customers and what is known of each."""

from __future__ import annotations

from typing import Annotated, Any

from servers.resources.workplace_assistant.declare import Toolkit, optional, required
from servers.resources.workplace_assistant.paging import Page, PageSize, paged
from servers.resources.workplace_assistant.tables import has_id, next_number, rows_containing, with_row

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")
FIELDS = (
    "customer_id",
    "assigned_to_email",
    "customer_name",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "follow_up_by",
    "notes",
)
CHANGEABLE = (
    "customer_name",
    "assigned_to_email",
    "customer_email",
    "customer_phone",
    "last_contact_date",
    "product_interest",
    "status",
    "notes",
    "follow_up_by",
)
ADDRESSES = ("assigned_to_email", "customer_email")

CustomerId = Annotated[Any, required("Id of the customer")]


class CustomerRelationshipManagerTool(Toolkit):
    prefix = "customer_relationship_manager"

    def search_customers(
        self,
        customer_name: Annotated[Any, optional("Text to find in the name")] = None,
        customer_email: Annotated[Any, optional("Text to find in the address")] = None,
        product_interest: Annotated[Any, optional("Text to find in the product interest")] = None,
        status: Annotated[Any, optional("Text to find in the status")] = None,
        assigned_to_email: Annotated[Any, optional("Text to find in the address of the person in charge")] = None,
        last_contact_date_min: Annotated[Any, optional("First day of the last contact, YYYY-MM-DD")] = None,
        last_contact_date_max: Annotated[Any, optional("Last day of the last contact, YYYY-MM-DD")] = None,
        follow_up_by_min: Annotated[Any, optional("First day of the next follow-up, YYYY-MM-DD")] = None,
        follow_up_by_max: Annotated[Any, optional("Last day of the next follow-up, YYYY-MM-DD")] = None,
        page: Page = 1,
        page_size: PageSize = 5,
    ) -> object:
        """Finds the customers to whom every given parameter applies."""
        texts = {
            "customer_name": customer_name,
            "customer_email": customer_email,
            "product_interest": product_interest,
            "status": status,
            "assigned_to_email": assigned_to_email,
        }
        ranges = {
            "last_contact_date": (last_contact_date_min, last_contact_date_max),
            "follow_up_by": (follow_up_by_min, follow_up_by_max),
        }
        if not any(texts.values()) and not any(first or last for first, last in ranges.values()):
            return "No search parameters provided. Please provide at least one parameter."
        found = self._tables.customers
        for column, text in texts.items():
            if text:
                found = found[rows_containing(found, column, text)]
        for column, (first, last) in ranges.items():
            if first:
                found = found[found[column] >= first]
            if last:
                found = found[found[column] <= last]
        return paged(found.to_dict(orient="records"), "customers", page, page_size)

    def update_customer(
        self,
        customer_id: CustomerId = None,
        field: Annotated[Any, required("Field to change, one of: " + ", ".join(map(repr, CHANGEABLE)))] = None,
        new_value: Annotated[Any, required("What the field shall hold")] = None,
    ) -> str:
        """Changes one field of the customer with this id."""
        if not customer_id or not field or not new_value:
            return "Customer ID, field, or new value not provided."
        if field == "status" and new_value not in STATUSES:
            return "Status not valid. Please choose from: " + ", ".join(map(repr, STATUSES))
        if field == "product_interest" and new_value not in PRODUCTS:
            return "Product interest not valid. Please choose from: " + ", ".join(map(repr, PRODUCTS))
        value = new_value.lower() if field in ADDRESSES else new_value
        customers = self._tables.customers.copy()
        if not has_id(customers, "customer_id", customer_id):
            return "Customer not found."
        if field not in customers.columns:
            return "Field not valid. Please choose from: " + ", ".join(map(repr, CHANGEABLE))
        customers.loc[customers["customer_id"] == customer_id, field] = value
        self._tables.customers = customers
        return "Customer updated successfully."

    def add_customer(
        self,
        customer_name: Annotated[Any, required("Name of the customer")] = None,
        assigned_to_email: Annotated[Any, required("E-mail address of the person in charge")] = None,
        status: Annotated[Any, required("Status, one of: " + ", ".join(map(repr, STATUSES)))] = None,
        customer_email: Annotated[Any, optional("E-mail address of the customer")] = None,
        customer_phone: Annotated[Any, optional("Phone number of the customer")] = None,
        last_contact_date: Annotated[Any, optional("Day of the last contact, YYYY-MM-DD")] = None,
        product_interest: Annotated[Any, optional("Product, one of: " + ", ".join(map(repr, PRODUCTS)))] = None,
        notes: Annotated[Any, optional("Notes about the customer")] = "",
        follow_up_by: Annotated[Any, optional("Day of the next follow-up, YYYY-MM-DD")] = None,
    ) -> str:
        """Adds a customer and returns the new id."""
        if not customer_name or not assigned_to_email or not status:
            return "Please provide all required fields: customer_name, assigned_to_email, status."
        customers = self._tables.customers
        row = {
            "customer_id": f"{next_number(customers, 'customer_id'):08d}",
            "assigned_to_email": assigned_to_email.lower(),
            "customer_name": customer_name,
            "customer_email": customer_email.lower() if customer_email else customer_email,
            "customer_phone": customer_phone,
            "last_contact_date": last_contact_date,
            "product_interest": product_interest,
            "status": status,
            "follow_up_by": follow_up_by,
            "notes": notes,
        }
        self._tables.customers = with_row(customers, row)
        return str(row["customer_id"])

    def delete_customer(self, customer_id: CustomerId = None) -> str:
        """Deletes the customer with this id."""
        if not customer_id:
            return "Customer ID not provided."
        customers = self._tables.customers
        if not has_id(customers, "customer_id", customer_id):
            return "Customer not found."
        self._tables.customers = customers[customers["customer_id"] != customer_id]
        return "Customer deleted successfully."
