"""Bad input over real sockets: a typed refusal that names the field, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from gymckpt.core.chunks import digest_of
from gymckpt.core.manifest import Decision
from gymckpt.errors import (
    CheckpointNotFound,
    DamagedFrame,
    GymckptError,
    InvalidField,
    InvalidPhase,
    MissingBlobs,
    StaleBoot,
)
from gymckpt.rpc import codec
from gymckpt.v1 import artifact_store_pb2, coordinator_pb2, participant_pb2, types_pb2
from gymckpt.v1.artifact_store_pb2_grpc import ArtifactStoreServiceStub
from tests.e2e.cli.processes import Processes, Run, start_run
from tests.e2e.trouble.garbage import MALFORMED, TOO_LARGE, UNKNOWN_FIELD, call, refusal, wrong_fields

SERVICES = {
    "CoordinatorService": coordinator_pb2.DESCRIPTOR.services_by_name["CoordinatorService"],
    "ArtifactStoreService": artifact_store_pb2.DESCRIPTOR.services_by_name["ArtifactStoreService"],
    "ParticipantService": participant_pb2.DESCRIPTOR.services_by_name["ParticipantService"],
}
METHODS = [method for service in SERVICES.values() for method in service.methods]
NEGOTIATING = ("Describe", "GetInfo")
"""Methods that answer a newer peer, whatever it says besides."""
PREFIXES = ("intents", "decisions", "epochs", "members", "floors", "pins", "deleted")
EPISODES = [types_pb2.Episode(rollout_id="r9")]


@dataclass
class Raw:
    """Channels to the two processes of a run that serve the three services."""

    run: Run
    coordinator: grpc.Channel
    counter: grpc.Channel

    def to(self, method: MethodDescriptor) -> grpc.Channel:
        return self.counter if method.containing_service.name == "ParticipantService" else self.coordinator

    def state(self) -> Any:
        """All that a caller can see of the run."""
        members = self.run("participants", "--json").json
        for member in members["members"]:
            del member["silent_seconds"]
        reports = self.run("explain", "--json").json
        return members, reports, self.run("checkpoint", "list", "--json").json, self.names()

    def names(self) -> list[str]:
        """Every name in the store."""
        stub = ArtifactStoreServiceStub(self.coordinator)
        answers = [stub.ListNames(artifact_store_pb2.ListNamesRequest(prefix=prefix)) for prefix in PREFIXES]
        return [entry.name for answer in answers for entry in answer.entries]


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    """A run with checkpoint `there` of r1."""
    processes = Processes()
    try:
        run = start_run(processes)
        run.count("r1", 5)
        assert run("checkpoint", "create", "there").code == 0
        options = [(f"grpc.max_{way}_message_length", 32 * 2**20) for way in ("send", "receive")]
        with (
            grpc.insecure_channel(run.coordinator.address, options) as coordinator,
            grpc.insecure_channel(run.counter.address, options) as counter,
        ):
            yield Raw(run, coordinator, counter)
    finally:
        processes.end()


@pytest.fixture
def unchanged(raw: Raw) -> Iterator[None]:
    """Whatever the test sends leaves everything as it was."""
    before = raw.state()
    yield
    assert raw.state() == before


def valid_requests(raw: Raw) -> list[tuple[str, Message]]:
    """A request of each kind in which every field is right, none of which is ever sent as it is."""
    c, s, p = coordinator_pb2, artifact_store_pb2, participant_pb2
    lease = Duration(seconds=30)
    create = c.CreateCheckpointRequest(
        checkpoint_id="c9", prepare_timeout=lease, gate_lease=lease, export_lease=lease, controller_state=b"?"
    )
    fence = types_pb2.Fence(epoch=1, sequence=1000, checkpoint_id="c9")
    order = p.TransitionRequest(fence=fence, number=1, boot_id=raw.run.counter.ready["boot_id"])
    prepare = p.TransitionRequest(prepare=p.Prepare(timeout=lease, gate_lease=lease))
    prepare.MergeFrom(order)
    snapshot = p.TransitionRequest(snapshot=p.Snapshot(closing=1, export_lease=lease, base_checkpoint_id="there"))
    snapshot.MergeFrom(order)
    retire = p.TransitionRequest(retire=p.Retire(episodes=EPISODES, timeout=lease))
    retire.MergeFrom(order)
    results = [types_pb2.Acknowledgement(episode=EPISODES[0], receipt=bytes(32))]
    acknowledge = p.TransitionRequest(acknowledge=p.Acknowledge(acknowledgements=results, timeout=lease))
    acknowledge.MergeFrom(order)
    return [
        ("CreateCheckpoint", create),
        ("GetCheckpoint", c.GetCheckpointRequest(checkpoint_id="there")),
        ("ListCheckpoints", c.ListCheckpointsRequest()),
        ("ListParticipants", c.ListParticipantsRequest()),
        ("WatchCheckpoint", c.WatchCheckpointRequest(checkpoint_id="there")),
        ("ResumeCheckpoint", c.ResumeCheckpointRequest(checkpoint_id="there")),
        ("AbortCheckpoint", c.AbortCheckpointRequest(checkpoint_id="c9", why="?")),
        ("RenewCheckpoint", c.RenewCheckpointRequest(checkpoint_id="there", gate_lease=lease, export_lease=lease)),
        ("PinCheckpoint", c.PinCheckpointRequest(checkpoint_id="there", holder="me")),
        ("RestoreCheckpoint", c.RestoreCheckpointRequest(restore_id="x9", checkpoint_id="there")),
        ("RetireEpisodes", c.RetireEpisodesRequest(episodes=EPISODES, timeout=lease)),
        ("AcknowledgeResults", c.AcknowledgeResultsRequest(acknowledgements=results, timeout=lease)),
        ("GetStatus", p.GetStatusRequest()),
        *(("Transition", transition) for transition in (prepare, snapshot, retire, acknowledge)),
        ("PutName", s.PutNameRequest(name="pins/there/me", value=b"?", epoch=1)),
        ("GetName", s.GetNameRequest(name="epochs/1")),
        ("ListNames", s.ListNamesRequest(prefix="epochs")),
        ("DeleteName", s.DeleteNameRequest(name="pins/there/nobody", epoch=1)),
        ("Read", s.ReadRequest()),
    ]


def method_of(name: str) -> MethodDescriptor:
    (found,) = [method for method in METHODS if method.name == name]
    return found


@pytest.mark.usefixtures("unchanged")
def test_unknown_fields_and_broken_bytes_are_refused_by_every_method(raw: Raw) -> None:
    """X20, X19: the number of the unknown field is named; only methods that compare revisions answer a newer peer."""
    for method in METHODS:
        error = call(raw.to(method), method, UNKNOWN_FIELD)
        if method.name in NEGOTIATING:
            assert error is None, method.name
        else:
            refused = refusal(raw.to(method), method, UNKNOWN_FIELD)
            assert isinstance(refused, InvalidField), method.name
            assert refused.field.endswith("8191"), method.name
        refused = refusal(raw.to(method), method, MALFORMED)
        assert isinstance(refused, InvalidField), method.name
        assert refused.field == "request", method.name


@pytest.mark.usefixtures("unchanged")
def test_each_wrong_field_is_named(raw: Raw) -> None:
    """X20, X21: ids too long, enum numbers that do not exist, negative durations, too many bytes."""
    tried = 0
    for name, valid in valid_requests(raw):
        method = method_of(name)
        for path, wrong in wrong_fields(valid):
            refused = refusal(raw.to(method), method, wrong.SerializeToString())
            assert isinstance(refused, InvalidField), f"{name} {path}: {refused!r}"
            assert refused.field.partition("[")[0] == path, f"{name} {path}: {refused}"
            assert len(refused.message) < 2000, f"{name} {path}"
            tried += 1
    assert tried > 40


@pytest.mark.usefixtures("unchanged")
def test_a_message_beyond_the_limit_is_refused_by_the_transport(raw: Raw) -> None:
    """X20."""
    for name in ("CreateCheckpoint", "RestoreCheckpoint", "Transition", "PutName", "Write", "Control"):
        method = method_of(name)
        error = call(raw.to(method), method, b"\x52" + TOO_LARGE)
        assert error is not None, name
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, name


@pytest.mark.usefixtures("unchanged")
def test_what_is_well_formed_and_impossible_is_refused_as_what_it_is(raw: Raw) -> None:
    """C05, C12, X05, X08, X26: wrong phase, stale epoch, another boot, unknown checkpoint, damaged frame, missing blob."""
    p, s = participant_pb2, artifact_store_pb2
    boot_id = raw.run.counter.ready["boot_id"]

    def order(epoch: int = 1, boot: str = boot_id) -> p.TransitionRequest:
        fence = types_pb2.Fence(epoch=epoch, sequence=1000, checkpoint_id="c9")
        snapshot = p.Snapshot(closing=1, export_lease=Duration(seconds=30))
        return p.TransitionRequest(fence=fence, number=1, boot_id=boot, snapshot=snapshot)

    lying = s.Batch(data=b"?", sizes=[1], blake3=bytes(32))
    lost = codec.encode_decision(Decision(digest_of(b"nowhere")))
    impossible: list[tuple[str, Message, type[GymckptError]]] = [
        ("Transition", order(), InvalidPhase),
        ("Transition", order(boot="f" * 32), StaleBoot),
        ("GetCheckpoint", coordinator_pb2.GetCheckpointRequest(checkpoint_id="nowhere"), CheckpointNotFound),
        (
            "RestoreCheckpoint",
            coordinator_pb2.RestoreCheckpointRequest(restore_id="x", checkpoint_id="nowhere"),
            CheckpointNotFound,
        ),
        ("Write", s.WriteRequest(batch=lying), DamagedFrame),
        ("PutName", s.PutNameRequest(name="decisions/c9", value=lost, epoch=1), MissingBlobs),
    ]
    for name, request, expected in impossible:
        method = method_of(name)
        refused = refusal(raw.to(method), method, request.SerializeToString())
        assert type(refused) is expected, f"{name}: {refused!r}"
