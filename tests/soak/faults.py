"""A follower that is kept going, and what happens to it: faults every few seconds, drawn from a deck."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg

from infra.embedded.postgres import EmbeddedPostgres
from tests.acceptance.commands import Project, Running
from tests.soak.random_source import CUT

GAVE_UP = 75
"""The exit code after which a service manager starts a command again."""
LEASE_SECONDS = 15.0
AT_WORK_SECONDS = 180.0


class Follower:
    """``run --follow`` as a service manager keeps it: started again where it ended with 75, and only there."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.gave_up = 0
        self.now = self.start()

    def start(self) -> Running:
        return self._project.start("run", "--follow", "--interval-seconds", "0.2")

    def keep(self) -> None:
        code = self.now.process.poll()
        if code is None:
            return
        assert code == GAVE_UP, f"ended by itself with {code}\n{self.now.describe()[-4000:]}"
        self.gave_up += 1
        self.now = self.start()

    def wait(self, seconds: float = AT_WORK_SECONDS) -> bool:
        """Wait until it follows. → False where it does not get there"""
        deadline = time.monotonic() + seconds
        while not at_work(self.now):
            if time.monotonic() > deadline:
                return False
            self.keep()
            time.sleep(0.1)
        return True

    def lives(self) -> list[Running]:
        return self._project.started


def lines_of(run: Running) -> list[dict[str, Any]]:
    """Its log so far. Other lines than ours (a JVM's, one that was being written at a kill) are passed over."""
    whole = [line for line in Path(run._err).read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole if line.startswith("{")]


def at_work(run: Running) -> bool:
    return run.process.poll() is None and '"event": "following"' in Path(run._err).read_text()


class Faults(threading.Thread):
    """One fault after the other until ``stop``. What goes wrong in here is raised by ``check``."""

    def __init__(
        self,
        follower: Follower,
        server: EmbeddedPostgres,
        chance: random.Random,
        *,
        deck: list[str],
        pause: tuple[float, float],
    ) -> None:
        super().__init__(name="faults", daemon=True)
        self.counts: Counter[str] = Counter()
        self.held = threading.RLock()
        """Held by whoever wants no fault for a while."""
        self._follower, self._server, self._chance = follower, server, chance
        self._deck, self._pause = deck, pause
        self._left: list[str] = []
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(self._chance.uniform(*self._pause)):
                with self.held:
                    if self._over.is_set():
                        break
                    self._follower.keep()
                    self._left = self._left or self._chance.sample(self._deck, len(self._deck))
                    kind = self._left.pop()
                    getattr(self, kind)()
                    self.counts[kind] += 1
        except BaseException as error:
            self._failure = error

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def deal(self, deck: list[str], pause: tuple[float, float]) -> None:
        """From here on only faults of this deck."""
        with self.held:
            self._deck, self._pause, self._left = deck, pause, []

    def first(self, *kinds: str) -> None:
        """These before the deck."""
        self._left = list(kinds)

    def stop(self) -> None:
        self._over.set()
        self.join()

    # ── the faults ───────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self) -> None:
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(CUT)

    def restart(self) -> None:
        """The server goes away, orderly or as in a crash, and comes back."""
        self._server.stop(self._chance.choice(["fast", "immediate"]))
        self._over.wait(self._chance.uniform(0, 3))
        self._server.start()

    def kill(self) -> None:
        self._follower.now.kill()
        self._follower.now = self._follower.start()

    def terminate(self) -> None:
        if not self._follower.wait():
            return
        self._ended_by_term(self._follower.now)
        self._follower.now = self._follower.start()

    def freeze(self) -> None:
        """Longer than its lease; then it goes on, or finds that another runner has taken over."""
        if not self._follower.wait():
            return
        old = self._follower.now
        # A virtual machine that is paused, or the driver alone
        stopped = os.killpg if self._chance.random() < 0.5 else os.kill
        stopped(old.process.pid, signal.SIGSTOP)
        try:
            if self._chance.random() < 0.5:
                time.sleep(LEASE_SECONDS + self._chance.uniform(1, 5))
                return
            self._follower.now = self._follower.start()
            self._follower.wait()
            self.counts["replaced"] += 1
        finally:
            stopped(old.process.pid, signal.SIGCONT)
        self._leave_one(old)

    def _leave_one(self, old: Running) -> None:
        """The one that was frozen ends as soon as it has something to write. It may have nothing, or no lease to lose."""
        deadline = time.monotonic() + 20
        while old.process.poll() is None and time.monotonic() < deadline:
            self._follower.keep()
            time.sleep(0.1)
        if old.process.poll() is None:
            self._ended_by_term(old)
            return
        done = old.done()
        assert done.code == GAVE_UP, done.err[-4000:]
        assert "another runner has taken over" in done.err, done.err[-4000:]
        self.counts["fenced"] += 1

    def _ended_by_term(self, run: Running) -> None:
        run.terminate()
        done = run.done()
        assert done.code == 0, f"TERM ended in {done.code}\n{done.err[-4000:]}"
