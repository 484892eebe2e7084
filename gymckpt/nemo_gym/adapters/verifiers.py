"""Shipped resources servers that only verify: nothing is kept between two calls, and a verification may run again.

Running again is safe; it need not give the same verdict, where a model judges.
"""

from __future__ import annotations

from gymckpt.nemo_gym.adapters.base import Stateless, declare

VERIFIERS = {
    "abstention": "AbstentionServer",
    "calendar": "CalendarResourcesServer",
    "code_gen": "CompCodingResourcesServer",
    "competitive_coding_challenges": "CompetitiveCodingChallengesResourcesServer",
    "equivalence_llm_judge": "LLMJudgeResourcesServer",
    "equivalence_rule": "EquivalenceRuleResourcesServer",
    "ether0": "Ether0ResourcesServer",
    "format_verification": "FormatVerificationResourcesServer",
    "genrm_compare": "GenRMCompareResourcesServer",
    "instruction_following": "InstructionFollowingResourcesServer",
    "inverse_if": "InverseIFServer",
    "jailbreak_detection": "JailbreakDetectionResourcesServer",
    "math_with_judge": "LibraryJudgeMathResourcesServer",
    "mcqa": "MCQAResourcesServer",
    "multichallenge": "MultiChallengeServer",
    "nvarc": "NVARCResourcesServer",
    "reasoning_gym": "ReasoningGymResourcesServer",
    "string_match": "StringMatchResourcesServer",
    "structured_outputs": "StructuredOutputsResourcesServer",
    "terminus_judge": "TerminusJudgeResourcesServer",
}
"""The server's class by its component, in `resources_servers.<component>.app`."""


class ComparedInCohorts(Stateless):
    """A verification waits for the other rollouts of its prompt, and these may be held by the same checkpoint: waiting for it could last forever.

    After a crash the members verify again and form their cohort anew. A crash after the comparison, and before every member got its reward, leaves those that
    come again waiting for those that do not, until `cohort_collection_timeout_s`; they fail then.
    """


OWN_ADAPTERS: dict[str, type[Stateless]] = {"genrm_compare": ComparedInCohorts}

for component, server in VERIFIERS.items():
    declare(f"resources_servers.{component}.app:{server}")(OWN_ADAPTERS.get(component, Stateless))
