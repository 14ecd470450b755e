"""HTTP as uvicorn speaks it, with a time limit on who never finishes asking."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S: Final = 5.0
MAX_HEAD_BYTES: Final = 16_384


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose first request head is not complete in time, and lets the app hang up."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "hang_up": transport.abort}
        self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a head that dribbles in after an earlier request has its time limit too."""
        idle = self.cycle is None or self.cycle.response_complete
        super().data_received(data)
        if self._patience is not None and self.cycle is not None and not self.cycle.response_complete:
            self._patience.cancel()
            self._patience = None
        elif idle and self._patience is None:
            self._patience = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
