"""Keys, signed notes and checkpoints against what others have published; anchors that are files."""

from __future__ import annotations

import base64
import os
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from audit.anchors.base import LARGEST_NOTE
from audit.anchors.file import FileAnchor
from audit.anchors.s3 import S3Anchor
from audit.audit_trail import Trail
from audit.errors import AnchorUnavailable, ForkedTrail
from audit.files import find_special_file, is_accessible_to_others
from audit.proof import (
    Checkpoint,
    ProofError,
    VerifierKey,
    leaf_hash,
    read_checkpoint,
    read_note,
    read_tlog_proof,
    root_from_path,
    verify_note,
)
from audit.signing.signer import Signer
from cdf.errors import ConfigError, VerificationError

# The key and the note of the documentation of Go's golang.org/x/mod/sumdb/note
SECRET = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz"
PUBLIC = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
SIGNATURE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)
NOTE = f"{TEXT}\n{SIGNATURE}\n"

# Go's checksum database: its key as the go command has it, and a proof that one of its records is in it
GO_KEY = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
GO_RECORD = b"""\
github.com/transparency-dev/tessera v1.0.0 h1:4OT1V9xJLa5NnYlFWWlCdZkCm18/o12rdd+bCTje7XE=
github.com/transparency-dev/tessera v1.0.0/go.mod h1:TLvfjlkbmsmKVEJUtzO2eb9Q2IBnK3EJ0dI4G0oxEOU=
"""
GO_PROOF = """\
c2sp.org/tlog-proof@v1
index 43930254
Q2cuq1e21q4UC1RQ6wtmXmCxk2q3Wqz/yFvD12P2KSM=
VdgHwjNYSv9fZVxvYzn8kySGvrjqeCnzdJqJILieWf4=
ARfBpZjsj3LSP42V4xBVdCKbHVa4WXSbuFAa0rUSCVQ=
0VYgz0Vmgz6jOM8H6edZBWHtO6+R7tPvN4EOwwRRSws=
vq+ifloynXE+ORFC1wymQT0cpNIJA1tqg2mQpA55+kc=
SCRewH6vHE1/Vwkt5yEW8xT7il0WbWltXjFIVqlGtQQ=
p//fIG8jgZie4MMwjHF7quCIJ4hErr7U4at0HV34MZQ=
D3K5YdBlxQcklrgF8vSbDyT05J5/mA9lzuhhp72uSOk=
jeYlYyH9FhYGwu+ZJmfPr8GvSNdgrydwqmJgHsygoR0=
p6RFgfGhu8Uuy0LyyZdI4MrSPOZkMe+ycwWJFfr8zTI=
AMZsxrVKBPSe8nSNVVCTyTxWns0CiNbChG/FoiSJWuM=
e+rtSmK5Pd1K5LgFwj7VSo5XJXOcq7OOcqPVZn1hqeM=
expmv1e6XiGr5NMUjMRkSZijlcBx+fZcpqQmUnawhOY=
+Wuic0YARH84k80/Q+KJIbhRCldxG8npjLFiHMLtEpo=
NOMeJqlyUxFXUKYRI/1YqAF4WJBfXJr8UM/SlWGqxgY=
Lm6+TAlLb2lvUs/3unZ2t6RSmJw8RO+WuEuUbAw3QEc=
Jhh2EDG15gDBoLmLiF88lVTgd+uvx3L0xczb8Y3kSq8=
taenaiKqtYMXS3gDzIF3q8VZzqAXqftHqL9BC39njaw=
kZNKypGwEANnt1+msLINnqrIrwX+0MGZUTTKXTfbloI=
A4NJSymjVJ5dvGPaGC3Gj04x8qVRKYfh0pP24mwd6Yk=
KQq808D9W4NUgr4ip+rF/RCyAUERYKKCwKiiAJfaFOc=
I3EVN3zM2rDjs5Q06Zr5gxhg+ksnX2h77E75uL+h3aI=
7iNSYSDhMeRkeV7r9krKbKelNPiqDCJU1i6xAn/Fbuw=
MYqdo6zSjxaAn+29EEjNRbPYm0myB3bheu+HTZIAbVY=
S7olT9TPLXk+bbawbV3sAzWMmhcpWrtjbw++9ZTiyn8=
xJ20xXM4QItt5vxFOtolZ5l18p7ej1+RimNkgWmoRFM=

go.sum database tree
58253265
lIyLAEe4zJUQAda6pFFg3yPOf7j1SgfMEDrpgoX39JU=

\u2014 sum.golang.org Az3grkvBHbFcpEFQ3BhGlktgB7pcswIW+ez91eWY6rNPtWfAey8bJO2rVoG2yO5zXvgiaikWVHqon+e14JhA+WXvpAY=
"""

ORIGIN = "trail.example.org/customers/5b1d"
MINE, OTHER = Signer.generate("trail.example.org/a"), Signer.generate("witness.example.org/b")


def checkpoint(size: int, content: str = "") -> Checkpoint:
    return Checkpoint(ORIGIN, size, leaf_hash(f"{size} {content}".encode()))


# ── what others have published ───────────────────────────────────────────────────────────────────────────────────────


def test_the_documented_key_and_note() -> None:
    signer = Signer.parse(SECRET)
    assert str(signer.verifier) == PUBLIC
    assert signer.secret() == SECRET
    assert verify_note(NOTE, [VerifierKey.parse(PUBLIC)]) == (TEXT, ("PeterNeumann",))


def test_a_real_proof_from_go_s_checksum_database() -> None:
    index, path, note = read_tlog_proof(GO_PROOF)
    text, signers = verify_note(note, [VerifierKey.parse(GO_KEY)])
    tree = read_checkpoint(text)
    assert (tree.origin, tree.size, signers) == ("go.sum database tree", 58253265, ("sum.golang.org",))
    assert root_from_path(leaf_hash(GO_RECORD), index, tree.size, path) == tree.root
    assert root_from_path(leaf_hash(GO_RECORD[:-1]), index, tree.size, path) != tree.root


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_key_is_another() -> None:
    one, other = Signer.generate("a"), Signer.generate("a")
    assert one.secret() != other.secret()
    assert one.verifier.id != other.verifier.id
    assert VerifierKey.parse(str(one.verifier)) == one.verifier
    assert Signer.parse(one.secret()) == one


def test_a_key_does_not_show_itself() -> None:
    shown = repr(MINE) + str(MINE) + repr([MINE])
    assert MINE.secret().split("+", 4)[4] not in shown
    seed = base64.b64decode(MINE.secret().split("+", 4)[4])[1:]
    assert seed.hex() not in shown
    assert repr(seed) not in shown


@pytest.mark.parametrize("name", ["", "two words", "a+b", "a\u2003b", "a\n"])
def test_names_that_a_note_could_not_hold(name: str) -> None:
    with pytest.raises(ConfigError, match="contain spaces or a plus"):
        Signer.generate(name)


def test_a_damaged_key_is_refused_wherever_it_is_damaged() -> None:
    for at in range(len(PUBLIC)):
        for damaged in (PUBLIC[:at] + PUBLIC[at + 1 :], PUBLIC[:at] + chr(ord(PUBLIC[at]) ^ 1) + PUBLIC[at + 1 :]):
            with pytest.raises(ProofError) as failed:
                VerifierKey.parse(damaged)
            assert failed.value.step == "key"
    for at in range(len(SECRET)):
        for damaged in (SECRET[:at] + SECRET[at + 1 :], SECRET[:at] + chr(ord(SECRET[at]) ^ 1) + SECRET[at + 1 :]):
            with pytest.raises(ConfigError) as refused:
                Signer.parse(damaged)
            assert damaged not in str(refused.value)
            assert SECRET[-20:] not in str(refused.value)


@pytest.mark.parametrize(
    "key",
    [
        # Of another kind, and of another length, each with an id that fits
        "PeterNeumann+173116ae+ZRpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
        "PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==",
        SECRET,
        "",
    ],
)
def test_what_is_no_verifier_key(key: str) -> None:
    with pytest.raises(ProofError, match=r"verifier key|base64"):
        VerifierKey.parse(key)


def test_a_key_file_is_its_owner_s(tmp_path: Path) -> None:
    file = tmp_path / "audit.key"
    before = os.umask(0)
    try:
        MINE.write(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Signer.read(file) == MINE
    with pytest.raises(ConfigError, match="already"):
        OTHER.write(file)
    assert Signer.read(file) == MINE


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o620, 0o666])
def test_a_key_that_everybody_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "audit.key"
    MINE.write(file)
    file.chmod(mode)
    with pytest.raises(ConfigError, match="users other than its owner") as refused:
        Signer.read(file)
    assert refused.value.hint == f"chmod 600 {file}"
    assert MINE.secret() not in str(refused.value.to_dict())


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600])
def test_a_mounted_secret_is_taken(tmp_path: Path, mode: int) -> None:
    """Also one that root owns and the process reads by its group."""
    file = tmp_path / "audit.key"
    MINE.write(file)
    file.chmod(mode)
    own = os.stat_result((stat.S_IFREG | mode, 0, 0, 1, 4711, 4711, 0, 0, 0, 0))
    assert is_accessible_to_others(own) == (mode == 0o440)
    if mode != 0o440 or not file.stat().st_uid:
        assert Signer.read(file) == MINE


def test_a_key_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Signer.read(tmp_path / "none")
    with pytest.raises(ConfigError, match="cannot be written"):
        MINE.write(tmp_path / "no folder" / "key")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    binary.chmod(0o600)
    with pytest.raises(ConfigError, match="not text"):
        Signer.read(binary)


# ── notes and checkpoints ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_checkpoint_is_read_as_it_was_signed() -> None:
    for size in (0, 1, 10**12):
        text, signers = verify_note(MINE.sign(checkpoint(size)), [OTHER.verifier, MINE.verifier])
        assert read_checkpoint(text) == checkpoint(size)
        assert signers == (MINE.name,)


@pytest.mark.parametrize("origin", ["", "two\nlines"])
def test_an_origin_is_one_line(origin: str) -> None:
    with pytest.raises((ValueError, ProofError)):
        MINE.sign(Checkpoint(origin, 1, bytes(32)))


def test_a_note_that_the_key_did_not_sign() -> None:
    note = MINE.sign(checkpoint(5))
    with pytest.raises(ProofError, match="not signed by this key") as failed:
        verify_note(note, [OTHER.verifier])
    assert failed.value.step == "signature"
    with pytest.raises(ProofError, match="not signed by this key"):
        verify_note(note, [Signer.generate(MINE.name).verifier])  # of the same name
    with pytest.raises(ProofError, match="not signed by this key"):
        verify_note(note, [])


def test_signatures_of_others_are_passed_over_and_a_false_one_of_ours_is_not() -> None:
    note = MINE.sign(checkpoint(5)) + OTHER.sign(checkpoint(5)).rpartition("\n\n")[2]
    text, _ = read_note(note)
    unknown = "\u2014 new.example.org " + base64.b64encode(b"an algorithm of later").decode() + "\n"
    assert verify_note(note + unknown, [MINE.verifier]) == (text, (MINE.name,))
    assert verify_note(note + unknown, [OTHER.verifier, MINE.verifier]) == (text, (MINE.name, OTHER.name))
    false = OTHER.sign(checkpoint(6)).rpartition("\n\n")[2]
    note = MINE.sign(checkpoint(5)) + false
    assert verify_note(note, [MINE.verifier]) == (text, (MINE.name,))
    with pytest.raises(ProofError, match="is invalid"):
        verify_note(note, [MINE.verifier, OTHER.verifier])


@pytest.mark.parametrize(
    "note",
    [
        "",
        TEXT,
        f"{TEXT}\n",
        f"{TEXT}\n{SIGNATURE}",
        f"{TEXT}{SIGNATURE}\n",
        f"{NOTE}\n",
        f"{NOTE}more\n",
        f"{TEXT}\n{SIGNATURE} \n",
        f"{TEXT}\n {SIGNATURE}\n",
        f"{TEXT}\n-{SIGNATURE[1:]}\n",
        f"{TEXT}\n\u2014 PeterNeumann\n",
        f"{TEXT}\n\u2014 Peter Neumann {SIGNATURE.split()[2]}\n",
        f"{TEXT}\n\u2014 Peter+Neumann {SIGNATURE.split()[2]}\n",
        f"{TEXT}\n\u2014 PeterNeumann x08gow==\n",
        f"{TEXT}\n\u2014 PeterNeumann x08go\n",
        f"{TEXT}\n{SIGNATURE.replace('=', '')}\n",
        NOTE.replace("think", "thi\tnk"),
        NOTE.replace("think", "thi\rnk"),
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("think", "thi\0nk"),
    ],
)
def test_what_is_no_note(note: str) -> None:
    with pytest.raises(ProofError) as failed:
        verify_note(note, [VerifierKey.parse(PUBLIC)])
    assert failed.value.step == "file"


def test_the_last_empty_line_ends_the_text() -> None:
    signer = Signer.parse(SECRET)
    text = "one\n\ntwo\n"
    signature = signer.verifier.id + signer._key().sign(text.encode())
    note = f"{text}\n\u2014 PeterNeumann {base64.b64encode(signature).decode()}\n"
    assert verify_note(note, [signer.verifier])[0] == text


ROOT = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"\n5\n{ROOT}\n",
        f"origin\n05\n{ROOT}\n",
        f"origin\n-5\n{ROOT}\n",
        f"origin\n+5\n{ROOT}\n",
        f"origin\n\u0665\n{ROOT}\n",
        f"origin\n5 \n{ROOT}\n",
        f"origin\n\n{ROOT}\n",
        f"origin\n1{'0' * 18}\n{ROOT}\n",
        f"origin\n5\n{ROOT}",
        f"origin\n5\n{ROOT}\n\n",
        f"origin\n5\n{ROOT}\nextension\n",
        "origin\n5\n",
        "origin\n5\nAAAA\n",
        f"origin\n5\n{ROOT[:-2]}9=\n",
        "",
    ],
)
def test_what_is_no_checkpoint(text: str) -> None:
    with pytest.raises(ProofError) as failed:
        read_checkpoint(text)
    assert failed.value.step == "file"


def test_an_empty_ledger_can_be_sealed() -> None:
    assert read_checkpoint(f"origin\n0\n{ROOT}\n") == Checkpoint("origin", 0, bytes(range(32)))


# ── anchors that are folders; what every anchor promises is in tests/integration/test_trail_anchors.py ───────────────


def test_a_checkpoint_is_a_file_that_is_not_meant_to_be_written_again(tmp_path: Path) -> None:
    for size in (2, 10):
        FileAnchor(tmp_path).publish(ORIGIN, MINE.sign(checkpoint(size)))
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert sorted(file.name for file in written) == [f"{size:020}.txt" for size in (2, 10)]
    assert {file.stat().st_mode & 0o333 for file in written} == {0}


def test_what_is_no_text_is_shown_all_the_same(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path)
    anchor.publish(ORIGIN, MINE.sign(checkpoint(7)))
    (file,) = (file for file in tmp_path.rglob("*.txt"))
    file.chmod(0o600)
    file.write_bytes(b"\xff")
    assert anchor.latest(ORIGIN) == "\ufffd"
    with pytest.raises(ForkedTrail):
        anchor.publish(ORIGIN, MINE.sign(checkpoint(7)))


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "huge", "circle", "nowhere", "socket"])
def test_what_takes_a_note_s_place_stops_no_reader(tmp_path: Path, kind: str) -> None:
    anchor = FileAnchor(tmp_path)
    anchor.publish(ORIGIN, MINE.sign(checkpoint(7)))
    (file,) = tmp_path.rglob("*.txt")
    other = file.with_name(f"{8:020}.txt")
    match kind:
        case "pipe":
            os.mkfifo(other)
        case "folder":
            other.mkdir()
        case "device":
            other.symlink_to("/dev/zero")
        case "circle":
            other.symlink_to(other)
        case "nowhere":
            other.symlink_to(tmp_path / "nothing")
        case "socket":
            os.mknod(other, stat.S_IFSOCK | 0o600)
        case "huge":
            with other.open("wb") as handle:
                handle.truncate(2**40)
    first, second = anchor.notes(ORIGIN)
    assert first == MINE.sign(checkpoint(7))
    assert second.strip("\0") == ""
    assert len(second) <= LARGEST_NOTE
    with pytest.raises(ForkedTrail):
        anchor.publish(ORIGIN, MINE.sign(checkpoint(8)))


def test_a_pipe_in_a_trail_is_refused_before_anything_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "part-0.parquet").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    assert find_special_file(tmp_path) is None
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "events" / "part-1.parquet").symlink_to(tmp_path / "pipe")
    assert find_special_file(tmp_path / "events") == tmp_path / "events" / "part-1.parquet"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "circle").symlink_to(tmp_path / "linked")
    assert find_special_file(tmp_path / "linked") is None
    (tmp_path / "linked" / "log").symlink_to(tmp_path / "events")
    assert find_special_file(tmp_path / "linked") == tmp_path / "linked" / "log" / "part-1.parquet"
    with pytest.raises(VerificationError, match="is not a regular file"):
        Trail(None, str(tmp_path)).verify()  # type: ignore[arg-type]


def test_a_folder_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one on a network file system does whose server is gone."""
    monkeypatch.setattr("audit.anchors.base.ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(Path, "is_dir", lambda _: time.sleep(3))
    with pytest.raises(AnchorUnavailable, match="no answer within"):
        FileAnchor(tmp_path).latest(ORIGIN)


def test_a_bucket_that_answers_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the answer never does."""
    import boto3

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)

    monkeypatch.setattr("audit.anchors.base.ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, args=(server,), daemon=True).start()
        made = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{server.getsockname()[1]}",
            aws_access_key_id="a",
            aws_secret_access_key="b",
            region_name="eu-west-1",
        )
        with pytest.raises(AnchorUnavailable, match="TimeoutError"):
            S3Anchor("s3://bucket", lambda: made).latest(ORIGIN)


def test_a_directory_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    anchor = FileAnchor(tmp_path / "worm")
    for call in (
        lambda: anchor.publish(ORIGIN, MINE.sign(checkpoint(7))),
        lambda: anchor.latest(ORIGIN),
        lambda: list(anchor.notes(ORIGIN)),
    ):
        with pytest.raises(AnchorUnavailable, match="no such directory") as failed:
            call()
        assert failed.value.transient
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_died_leaves_nothing_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anchor = FileAnchor(tmp_path)
    anchor.publish(ORIGIN, MINE.sign(checkpoint(1)))

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", dies)
        patched.setattr(Path, "unlink", dies)
        with pytest.raises(KeyboardInterrupt):
            anchor.publish(ORIGIN, MINE.sign(checkpoint(2)))
    assert list(anchor.notes(ORIGIN)) == [MINE.sign(checkpoint(1))]
    anchor.publish(ORIGIN, MINE.sign(checkpoint(2)))
    assert anchor.latest(ORIGIN) == MINE.sign(checkpoint(2))
