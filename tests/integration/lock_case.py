"""A Delta table's log and lock entries, put on moto by hand as a writer leaves them that dies at some step."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from tests.fixtures.fix_aws import Aws

__all__ = ["Commits", "file_of"]

DAY = 24 * 60 * 60


def file_of(version: int) -> str:
    return f"{version:020d}.json"


@dataclass
class Commits:
    aws: Aws
    table: str = "t"
    scheme: str = "s3a"
    temps: dict[int, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"{self.scheme}://{self.aws.bucket}/{self.table}"

    # What a writer does, step by step

    def temp(self, version: int, content: bytes | None = None) -> str:
        """Step 1: the temporary file, named as Delta names it."""
        self.temps[version] = f".tmp/{file_of(version)}.{secrets.token_hex(8)}"
        self.put(self.temps[version], content or f"commit {version}\n".encode())
        return self.temps[version]

    def claim(self, version: int, **changed: Any) -> None:
        """Step 2: the entry."""
        temp = self.temps.setdefault(version, f".tmp/{file_of(version)}.gone")
        item = {"tablePath": self.path, "fileName": file_of(version), "tempPath": temp, "complete": "false", **changed}
        typed = {name: {"N" if isinstance(value, int) else "S": str(value)} for name, value in item.items()}
        self.aws.dynamodb.put_item(TableName=self.aws.lock_table, Item=typed)

    def copy(self, version: int, content: bytes | None = None) -> None:
        """Step 3: the commit itself."""
        self.put(file_of(version), content or f"commit {version}\n".encode())

    def complete(self, version: int, *, expires: int | None = None) -> None:
        """Step 4: the entry says so."""
        self.claim(version, complete="true", expireTime=expires or int(time.time()) + DAY)

    def commit(self, *versions: int) -> Commits:
        """All of it."""
        for version in versions:
            self.temp(version)
            self.copy(version)
            self.complete(version)
        return self

    # What is there

    def key(self, file: str) -> str:
        return f"{self.table}/_delta_log/{file}"

    def put(self, file: str, content: bytes) -> None:
        self.aws.s3.put_object(Bucket=self.aws.bucket, Key=self.key(file), Body=content)

    def remove(self, *files: str) -> None:
        for file in files:
            self.aws.s3.delete_object(Bucket=self.aws.bucket, Key=self.key(file))

    def remove_log(self) -> None:
        self.remove(*self.files())

    def files(self) -> dict[str, bytes]:
        listed = self.aws.s3.list_objects_v2(Bucket=self.aws.bucket, Prefix=self.key("")).get("Contents", [])
        return {
            one["Key"].removeprefix(self.key("")): self.aws.s3.get_object(Bucket=self.aws.bucket, Key=one["Key"])[
                "Body"
            ].read()
            for one in listed
        }

    def commits(self) -> dict[str, bytes]:
        return {name: content for name, content in self.files().items() if not name.startswith(".tmp/")}

    def entry(self, version: int) -> dict[str, str] | None:
        """Without the types of DynamoDB."""
        key = {"tablePath": {"S": self.path}, "fileName": {"S": file_of(version)}}
        item = self.aws.dynamodb.get_item(TableName=self.aws.lock_table, Key=key, ConsistentRead=True).get("Item")
        return None if item is None else {name: next(iter(value.values())) for name, value in item.items()}

    def is_complete(self, version: int) -> bool:
        found = self.entry(version)
        return found is not None and found["complete"] == "true"
