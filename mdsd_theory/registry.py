"""Names to classes: ours, and those that other installed packages offer through an entry-point group."""

from __future__ import annotations

from importlib.metadata import entry_points


class Registry:
    """Known names of one kind of thing.

    Args:
        kind: what an error calls it.
        group: the entry-point group in which other packages add to it.
        own: our classes by name. A name of ours cannot be taken over by another package.
    """

    def __init__(self, kind: str, group: str, own: dict[str, type]) -> None:
        self.kind, self.group, self._own = kind, group, own

    @property
    def names(self) -> tuple[str, ...]:
        """Our own names."""
        return tuple(self._own)

    def all_names(self) -> tuple[str, ...]:
        """Our own names and those of installed packages."""
        return (*self._own, *sorted(e.name for e in entry_points(group=self.group) if e.name not in self._own))

    def get(self, name: str) -> type:
        """The class called `name`. Raises ValueError that lists the known names, or why it cannot be loaded."""
        if name in self._own:
            return self._own[name]
        for entry in entry_points(group=self.group):
            if entry.name == name:
                try:
                    return entry.load()
                except Exception as error:
                    raise ValueError(f"{self.kind} {name}: {entry.value} cannot be loaded: {error}") from error
        raise ValueError(f"{self.kind}: unknown name {name!r}; known are {', '.join(self.all_names())}")
