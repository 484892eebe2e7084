"""One page of a search's rows, in the shape that all searches answer in."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import optional_count

Page = Annotated[Any, optional_count("Number of the page to return, counted from 1")]
PageSize = Annotated[Any, optional_count("How many results a page holds")]


def paged(rows: pd.DataFrame, noun: str, page: Any, page_size: Any) -> dict[str, Any]:
    """`{noun: records, "pagination": {...}}`; a page behind the last one has no records.

    Raises:
        TypeError, ZeroDivisionError: `page` or `page_size` is no usable number.
    """
    total = len(rows)
    first = (page - 1) * page_size
    return {
        noun: rows.iloc[first : first + page_size].to_dict(orient="records"),
        "pagination": {
            f"total_{noun}": total,
            "page": page,
            "page_size": page_size,
            "total_pages": -(-total // page_size),
        },
    }
