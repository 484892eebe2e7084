"""Shipped resources servers whose sessions are plain data in one mapping."""

from __future__ import annotations

from gymckpt.nemo_gym.adapters.base import MappingAdapter, declare


@declare("resources_servers.example_session_state_mgmt.app:StatefulCounterResourcesServer")
class SessionStateManagement(MappingAdapter):
    """A counter per session."""

    attribute = "session_id_to_counter"
    schema = "nemo_gym/example_session_state_mgmt/1"
    read_only_routes = ("/get_counter_value",)


@declare("resources_servers.indirect_prompt_injection.app:IPIResourcesServer")
class IndirectPromptInjection(MappingAdapter):
    """The environment that the task's row describes, as the tools left it."""

    attribute = "session_id_to_env"
    schema = "nemo_gym/indirect_prompt_injection/1"


@declare("resources_servers.example_mcp_weather.app:ExampleMCPWeatherResourcesServer")
class MCPWeather(MappingAdapter):
    """The expected city and the calls made."""

    attribute = "session_id_to_state"
    schema = "nemo_gym/example_mcp_weather/1"
