"""Web site visits, and the plots drawn from them."""

from __future__ import annotations

from typing import Annotated, Any

import pandas as pd

from servers.resources.workplace_assistant.declare import Toolkit, optional, required

FIELDS = (
    "date_of_visit",
    "visitor_id",
    "page_views",
    "session_duration_seconds",
    "traffic_source",
    "user_engaged",
)
TRAFFIC_SOURCES = ("direct", "referral", "search engine", "social media")
PLOT_VALUES = (
    "total_visits",
    "session_duration_seconds",
    "user_engaged",
    "visits_direct",
    "visits_referral",
    "visits_search_engine",
    "visits_social_media",
)
PLOT_TYPES = ("bar", "line", "scatter", "histogram")

FirstDay = Annotated[Any, optional("First day, as YYYY-MM-DD")]
LastDay = Annotated[Any, optional("Last day, as YYYY-MM-DD")]


class AnalyticsTool(Toolkit):
    prefix = "analytics"

    def get_visitor_information_by_id(self, visitor_id: Annotated[Any, required("Id of the visitor")] = None) -> object:
        """Returns all visits of one visitor."""
        if not visitor_id:
            return "Visitor ID not provided."
        visits = self._tables.analytics_data
        found = visits[visits["visitor_id"] == visitor_id]
        return "Visitor not found." if found.empty else found.to_dict(orient="records")

    def create_plot(
        self,
        time_min: Annotated[Any, required("First day, as YYYY-MM-DD")] = None,
        time_max: Annotated[Any, required("Last day, as YYYY-MM-DD")] = None,
        value_to_plot: Annotated[Any, required("What to plot, one of: " + ", ".join(map(repr, PLOT_VALUES)))] = None,
        plot_type: Annotated[Any, required("How to plot it, one of: " + ", ".join(map(repr, PLOT_TYPES)))] = None,
    ) -> str:
        """Plots a value over a range of days and returns the path of the picture."""
        if not time_min:
            return "Start date not provided."
        if not time_max:
            return "End date not provided."
        if value_to_plot not in PLOT_VALUES:
            return "Value to plot must be one of " + ", ".join(map(repr, PLOT_VALUES))
        if plot_type not in PLOT_TYPES:
            return "Plot type must be one of " + ", ".join(map(repr, PLOT_TYPES[:-1])) + f", or {PLOT_TYPES[-1]!r}"
        path = f"plots/{time_min}_{time_max}_{value_to_plot}_{plot_type}.png"
        plots = self._tables.analytics_plots.copy()
        plots.loc[len(plots)] = [path]
        self._tables.analytics_plots = plots
        return path

    def total_visits_count(self, time_min: FirstDay = None, time_max: LastDay = None) -> object:
        """Counts the visits of each day within a range of days."""
        return self._visits(time_min, time_max).groupby("date_of_visit").size().to_dict()

    def engaged_users_count(self, time_min: FirstDay = None, time_max: LastDay = None) -> object:
        """Counts the visits of engaged users on each day within a range of days."""
        return self._visits(time_min, time_max).groupby("date_of_visit")["user_engaged"].sum().to_dict()

    def traffic_source_count(
        self,
        time_min: FirstDay = None,
        time_max: LastDay = None,
        traffic_source: Annotated[
            Any, optional("Where the visits came from, one of: " + ", ".join(map(repr, TRAFFIC_SOURCES)))
        ] = None,
    ) -> object:
        """Counts the visits from one traffic source, or from all, on each day within a range of days."""
        visits = self._visits(time_min, time_max)
        if not traffic_source:
            return visits.groupby("date_of_visit").size().to_dict()
        return (visits["traffic_source"] == traffic_source).groupby(visits["date_of_visit"]).sum().to_dict()

    def get_average_session_duration(self, time_min: FirstDay = None, time_max: LastDay = None) -> object:
        """Returns the average length of a visit in seconds on each day within a range of days."""
        visits = self._visits(time_min, time_max)
        seconds = visits["session_duration_seconds"].astype(float)
        if visits is self._tables.analytics_data:
            # Without a range the session's own column becomes numbers, and later answers show it.
            self._tables.analytics_data = visits.assign(session_duration_seconds=seconds)
        return seconds.groupby(visits["date_of_visit"]).mean().to_dict()

    def _visits(self, time_min: Any, time_max: Any) -> pd.DataFrame:
        visits = self._tables.analytics_data
        if time_min:
            visits = visits[visits["date_of_visit"] >= time_min]
        if time_max:
            visits = visits[visits["date_of_visit"] <= time_max]
        return visits
