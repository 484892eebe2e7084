"""Who takes part. It fails closed: whoever is expected and absent, or here and silent, is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gymckpt.coordinator.members.link import Link
from gymckpt.core.ids import ParticipantId
from gymckpt.core.kinds import Kind
from gymckpt.core.manifest import ParticipantInfo
from gymckpt.core.report import LostEpisode
from gymckpt.core.transitions import Holdings
from gymckpt.errors import MemberMissing, StaleBoot

Key = tuple[ParticipantId, str]


@dataclass(slots=True)
class Member:
    """A process that announced itself; `admitted` once no round ran without it."""

    link: Link
    holds: Holdings
    heard: float
    admitted: bool
    lost: tuple[LostEpisode, ...] = field(default=())

    @property
    def info(self) -> ParticipantInfo:
        return self.link.info


class Registry:
    """`expected` must be there for a checkpoint: those that a person named, or else the members of the last one. Times are monotonic seconds, passed in."""

    def __init__(self, expected: Iterable[ParticipantId] = ()) -> None:
        self.expected = tuple(sorted(set(expected)))
        self._named = bool(self.expected)
        self._members: dict[Key, Member] = {}
        self._replaced: dict[str, str] = {}
        self._unused: list[Link] = []

    @property
    def members(self) -> list[Member]:
        """In the order of kind, name and worker."""
        return [self._members[key] for key in sorted(self._members)]

    @property
    def missing(self) -> tuple[ParticipantId, ...]:
        """Expected participants of which no process is here."""
        here = {participant for participant, _ in self._members}
        return tuple(participant for participant in self.expected if participant not in here)

    def expect(self, members: Iterable[ParticipantInfo]) -> None:
        """A checkpoint was begun with these members: whoever is among them is missed from now on, unless a person said who must be there."""
        if not self._named:
            self.expected = tuple(sorted({info.id for info in members}))

    def register(
        self, info: ParticipantInfo, holds: Holdings, lost: Sequence[LostEpisode], now: float, *, admit: bool
    ) -> Member:
        """A process announces itself, or does so again. A new boot replaces the old one. Raises StaleBoot for one that was replaced."""
        newer = self._replaced.get(info.boot_id)
        if newer is not None:
            raise StaleBoot(
                f"boot {info.boot_id} of {info.id} ({info.worker}) was replaced by boot {newer}; stop",
                details={"participant": str(info.id), "boot_id": info.boot_id, "newer_boot_id": newer},
            )
        key = (info.id, info.worker)
        member = self._members.get(key)
        same = member is not None and (member.info.boot_id, member.info.address) == (info.boot_id, info.address)
        # One that was taken for dead and speaks again is reached anew: its link has given it up.
        if member is not None and same and not member.link.gone:
            member.holds, member.heard, member.lost = holds, now, tuple(lost)
            member.admitted = member.admitted or admit
            return member
        if member is not None and member.info.boot_id != info.boot_id:
            self._replaced[member.info.boot_id] = info.boot_id
            member.link.mark_gone(f"boot {member.info.boot_id} was replaced by boot {info.boot_id}")
        if member is not None:
            self._unused.append(member.link)
        member = Member(Link(info), holds, now, admit, tuple(lost))
        self._members[key] = member
        return member

    def drop(self, member: Member) -> None:
        """Forgets a process that is known to be dead."""
        key = (member.info.id, member.info.worker)
        if self._members.get(key) is member:
            del self._members[key]
            self._unused.append(member.link)

    async def close_unused(self) -> None:
        """Closes the ways to processes that were replaced or dropped; no round may use them any more."""
        unused, self._unused = self._unused, []
        for link in unused:
            await link.close()

    def check_complete(self, members: Sequence[Member], absent: Sequence[str] = ()) -> None:
        """Raises MemberMissing unless all that are expected, and a model, are among `members` and nobody is `absent`."""
        here = {member.info.id for member in members}
        missing = [str(participant) for participant in self.expected if participant not in here]
        named = [name for name in missing if not any(text.startswith(name) for text in absent)] + list(absent)
        if named:
            raise MemberMissing(
                f"not here: {', '.join(named)}; start them, then retry",
                details={"members": ",".join(n.replace(",", ";") for n in named)},
            )
        if not any(participant.kind is Kind.MODEL for participant in here):
            raise MemberMissing(
                f"no model participant among {', '.join(str(p) for p in sorted(here)) or 'no members at all'}; start one, then retry",
                details={"members": "model"},
            )

    async def close(self) -> None:
        await self.close_unused()
        for member in self.members:
            await member.link.close()
