"""Last step: issue the signed certificate of each verified request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from audit.erasure.evidence.certificate import refuse_identifiers, sign
from audit.erasure.run.certificate_content import CertificateContent

if TYPE_CHECKING:
    from audit.erasure.model import Request
    from audit.erasure.run.context import RunContext
    from audit.erasure.run.destroy_keys import DestroyKeys

__all__ = ["IssueCertificates"]


class IssueCertificates:
    def __init__(self, context: RunContext, keys: DestroyKeys) -> None:
        self._context, self._keys = context, keys

    def is_done(self) -> bool:
        return not self._waiting()

    def run(self) -> None:
        if waiting := self._waiting():
            requests = [one for one in self._context.requests if one.id in waiting]
            self._context.held.certify({one.id: self.make_certificate(one) for one in requests})

    def _waiting(self) -> set[str]:
        """Return the verified requests. A certified one is left out: a certificate is issued once."""
        states = self._context.register.requests(self._context.ids)
        return {one.id for one in states if one.state == "verified"}

    def make_certificate(self, request: Request) -> Mapping[str, Any]:
        document = CertificateContent(self._context, self._keys, request).make()
        refuse_identifiers(document, self._context.search_terms())
        return sign(document, self._context.signer)
