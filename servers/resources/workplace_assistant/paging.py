"""One page of a search's rows, in the shape that all searches answer in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Annotated, Any

from servers.resources.workplace_assistant.declare import optional_count

Page = Annotated[Any, optional_count("Number of the page to return, counted from 1")]
PageSize = Annotated[Any, optional_count("How many results a page holds")]

Record = dict[Hashable, Any]


def paged(records: list[Record], noun: str, page: Any, page_size: Any) -> object:
    """`{noun: records, "pagination": {...}}`, or in words that there are none. A page out of range is the nearest.

    Raises:
        TypeError, ZeroDivisionError: `page` or `page_size` is no usable number.
    """
    total = len(records)
    total_pages = (total + page_size - 1) // page_size
    page = max(1, min(page, total_pages)) if total_pages > 0 else 1
    if not records:
        return f"No {noun} found."
    first = (page - 1) * page_size
    return {
        noun: records[first : first + page_size],
        "pagination": {
            f"total_{noun}": total,
            "page": page,
            "page_size": page_size,
            "total_pages": total_pages,
        },
    }
