"""``SessionOpener``: how the sessions of one graph are created, restored and made ready."""

from __future__ import annotations

import os
from typing import Any, ClassVar, NamedTuple, TypeAlias

#: A directory or a file; None: none was given.
Place: TypeAlias = str | os.PathLike[str] | None


class Role(NamedTuple):
    """The role of one process in a training that several may share.

    Attributes:
        master: The session server to connect to, for TensorFlow's sessions; "" for none.
        config: The configuration of TensorFlow's sessions, or None.
        is_chief: Whether it restores or initializes; any other process waits until that is done.
        has_chief_hooks: Whether it takes the hooks that are for the chief alone.
        summaries: The folder, inside the directory that the program names, to which it writes
            summaries; "" is that directory itself, None means that it writes none.
        checkpoints: The same for checkpoints.
        in_step: Whether all processes must save in the same steps, and none by the clock.
    """

    master: str
    config: Any
    is_chief: bool
    has_chief_hooks: bool
    summaries: str | None
    checkpoints: str | None
    in_step: bool = False


def role_alone(master: str, is_chief: bool, config: Any) -> Role:
    """Return the role of a process that knows only what its program says: a chief does it all."""
    folder = "" if is_chief else None
    return Role(master, config, is_chief, is_chief, folder, folder)


class SessionOpener:
    """Opens sessions of one kind of graph, for creators, scaffolds and monitored sessions.

    A framework that runs graphs of its own extends it; ``BaseGraph.opener`` returns it. In the
    arguments, ``scaffold`` is a ``Scaffold``, and sessions are ``RawSession`` objects.
    """

    #: The framework's own scaffold classes, which creators take as well.
    scaffolds: tuple[type, ...] = ()

    #: Whether the sessions of all ranks of a group agree; False: the framework has its own way.
    joins_ranks: ClassVar[bool] = True

    #: Whether runhooks writes the checkpoints of its sessions; False: the framework's savers do.
    writes_checkpoints: ClassVar[bool] = True

    def check_target(self, master: str, config: Any) -> None:
        """Raise ValueError if sessions of this graph take no ``master`` or ``config``."""

    def resolve(self, place: str | os.PathLike[str]) -> str | os.PathLike[str]:
        """Return a path that means the same place whatever the working directory becomes."""
        return place

    def role(self, master: str, is_chief: bool, config: Any) -> Role:
        """Return what this process does: as the program says, unless a coordinator has decided."""
        return role_alone(master, is_chief, config)

    def fill_scaffold(self, scaffold: Any) -> None:
        """Give ``scaffold`` the defaults it lacks; the graph may be added to for the last time."""
        raise NotImplementedError

    def default_local_init_op(self) -> Any:
        """Return the operation that every session runs unless its scaffold names another."""
        return None

    def open_chief(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place, path: Place
    ) -> Any:
        """Return a session that is restored, or else initialized, and ready.

        Raises:
            FailedPreconditionError: If the session is not ready.
        """
        raise NotImplementedError

    def try_worker(
        self, scaffold: Any, master: str, config: Any, checkpoint_dir: Place
    ) -> tuple[Any, Exception | None]:
        """Return a session and None if the chief has made one ready, else None and the reason."""
        raise NotImplementedError

    def deadline_error(self, message: str, checkpoint_dir: Place) -> Exception:
        """Return the error for a worker that has waited too long."""
        raise NotImplementedError

    def prepare_graph(self) -> None:
        """Add to the graph, which is not final yet, what sessions of it need."""

    def as_raw_session(self, session: Any) -> Any:
        """Return ``session``, which a user's own creator made, as a ``RawSession``."""
        return session

    def start_threads(self, session: Any, coord: Any) -> None:
        """Start the threads that the graph asks for, under the coordinator ``coord``."""
