"""Credentials of azure.identity, which give tokens over the pipe."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Protocol

from changefeed._connection import Token


class TokenCredential(Protocol):
    """A credential of azure.core.credentials, or an asynchronous one of azure.core.credentials_async."""

    def get_token(self, *scopes: str, **kwargs: Any) -> Any:
        """A token, with the members token and expires_on, or an awaitable one."""


def tokens_of(credential: TokenCredential) -> Token:
    """Asks a credential for tokens."""

    async def token(scope: str) -> tuple[str, float]:
        if inspect.iscoroutinefunction(credential.get_token):
            got = await credential.get_token(scope)
        else:
            got = await asyncio.to_thread(credential.get_token, scope)  # it may send requests
        return str(got.token), float(got.expires_on)

    return token
