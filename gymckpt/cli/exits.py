"""Exit codes, and what to do after each refusal: the one table that README.md repeats."""

from __future__ import annotations

import enum
import itertools

from gymckpt import errors
from gymckpt.errors import GymckptError


class Exit(enum.IntEnum):
    """How a command ended."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    DAMAGED = 4
    HELD = 5
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.REFUSED: "the protocol refused, or the round failed; every gate is open again unless the message says otherwise",
    Exit.USAGE: "wrong usage, an invalid field, or the extra [cli] is not installed; nothing was changed",
    Exit.UNREACHABLE: "the coordinator or the store could not be reached; what was asked may or may not have happened",
    Exit.DAMAGED: "the store holds damaged data, or lacks data that a checkpoint needs",
    Exit.HELD: "not ready by the deadline with --on-not-ready hold; gates stay closed until the gate lease ends",
    Exit.INTERRUPTED: "interrupted; only the waiting ended, a round goes on",
}

# A class counts for its subclasses; the first match decides.
_CODES: tuple[tuple[type[GymckptError], Exit], ...] = (
    (errors.InvalidField, Exit.USAGE),
    (errors.NotImplementedHere, Exit.USAGE),
    (errors.TransportFailed, Exit.UNREACHABLE),
    (errors.StoreUnavailable, Exit.UNREACHABLE),
    (errors.DeadlineExceeded, Exit.UNREACHABLE),
    (errors.DamagedBlob, Exit.DAMAGED),
    (errors.BlobNotFound, Exit.DAMAGED),
    (errors.MissingBlobs, Exit.DAMAGED),
    (GymckptError, Exit.REFUSED),
)

# Where README.md goes on.
STUCK = "see 'Stuck closed' in gymckpt/cli/README.md"
REFUSED = "see 'Restore refused' in gymckpt/cli/README.md"
DAMAGED = "see 'Store damaged, full or unreachable' in gymckpt/cli/README.md"

_NEXT: tuple[tuple[type[GymckptError], str], ...] = (
    (errors.InvalidField, "correct the option that the message names; `--help` tells its form"),
    (errors.StaleEpoch, "a newer coordinator took over: point --coordinator at it"),
    (errors.StaleCheckpoint, "take a new checkpoint under a new id"),
    (errors.Conflict, "let what is under way end, then try again"),
    (errors.ArgumentConflict, "use a new id, or repeat the first request exactly"),
    (
        errors.InvalidPhase,
        "look at `gymckpt checkpoint show ID`; `gymckpt checkpoint abort ID` is possible at any stage",
    ),
    (
        errors.NotReady,
        f"see `gymckpt explain`, then try again under a new id, perhaps with a longer --prepare-timeout; {STUCK}",
    ),
    (errors.ReceiptMismatch, "nothing was acknowledged: `gymckpt results list` tells the receipts"),
    (errors.RestartInScope, "leave those episodes out of --episodes"),
    (
        errors.MemberMissing,
        f"start what is missing; kill what lives and does not answer, and start it again; {STUCK}",
    ),
    (
        errors.UnloadableState,
        f"start the server that wrote the state, or restore with --on-unloadable restart; {REFUSED}",
    ),
    (errors.RestoreAborted, "nothing of it can run; repeat under a new restore id, or start those rollouts from input"),
    (
        errors.CutVoid,
        "every gate is open again: take a new checkpoint under a new id, with --full where its base cannot be read",
    ),
    (errors.RoundFailed, "every gate is open again: take a new checkpoint under a new id"),
    (errors.CheckpointNotFound, "`gymckpt checkpoint list` shows what there is"),
    (errors.StoreFull, f"make room on the store's disk, then try again; {DAMAGED}"),
    (errors.NotImplementedHere, "do not try again: this release does not have it"),
    (errors.StoreUnavailable, "see that `gymckpt serve` runs, and what it logged, then try again"),
    (errors.DeadlineExceeded, "nothing changed: try again"),
    (errors.DamagedBlob, f"`gymckpt store verify` names the checkpoints that it hits; restore another one; {DAMAGED}"),
    (errors.BlobNotFound, f"`gymckpt store verify` names the checkpoints that it hits; restore another one; {DAMAGED}"),
    (
        errors.MissingBlobs,
        f"the servers have it still: `gymckpt checkpoint create --full` under a new id writes it again; {DAMAGED}",
    ),
    (
        errors.TransportFailed,
        "see that `gymckpt serve` runs and that --coordinator (or GYMCKPT_COORDINATOR) names its address",
    ),
)

STOPPING = "the attempts are refused already: the same command again waits for whoever has not stopped them"
# Where a class has several causes, a key of the details tells them apart; this table is asked first.
_NEXT_BY_DETAIL: tuple[tuple[type[GymckptError], str, str], ...] = (
    (
        errors.Conflict,
        "holder",
        f"let it end, then try again; a checkpoint that keeps gates closed is ended by `gymckpt checkpoint resume ID`; {STUCK}",
    ),
    (errors.DamagedBlob, "name", f"change nothing, and copy the store's directory first; {DAMAGED}"),
    (errors.Conflict, "holders", "let those who pin it release it, or wait for the restore to end"),
    (
        errors.InvalidField,
        "config",
        "correct the file; 'A supervised run' in gymckpt/cli/README.md tells what it may say",
    ),
    (errors.ArgumentConflict, "deleted", "take the checkpoint under a new id"),
    (errors.Conflict, "stopping", "start `gymckpt serve` again on the same store, then repeat the command"),
    (errors.InvalidPhase, "published", "take another one with a longer --gate-lease, then stop the servers"),
    (
        errors.TransportFailed,
        "listen",
        "find out what listens there, or choose another --listen; port 0 takes a free one",
    ),
    (errors.DeadlineExceeded, "refused", STOPPING),
    (errors.ParticipantLost, "refused", STOPPING),
    (errors.ParticipantLost, "results", f"repeat the command, and start it again first if it is dead; {STUCK}"),
    (
        errors.StoreUnavailable,
        "process",
        "stop that process, or name another directory; a store that is served is verified without --store, through --coordinator",
    ),
    (
        errors.StoreUnavailable,
        "doing",
        "see that the store's directory is one, and that the process may read and write it; then try again",
    ),
)


def exit_code(error: GymckptError) -> Exit:
    """How a command ends after this error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def next_step(error: GymckptError) -> str:
    """What to do next; empty where the message says it all."""
    by_detail = (advice for kind, key, advice in _NEXT_BY_DETAIL if isinstance(error, kind) and key in error.details)
    by_class = (advice for kind, advice in _NEXT if isinstance(error, kind))
    return next(itertools.chain(by_detail, by_class), "")
