"""The `mdsd` command: sub-commands are collected from the entry-point group `mdsd.commands`."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import typer

# click's ClickException, which newer Typers carry a copy of: this is whichever they raise.
_USAGE_ERROR = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def build() -> typer.Typer:
    """The application with every installed sub-command."""
    app = typer.Typer(
        help="Multi-draft speculative decoding: optimal acceptance rates, verifiers, studies, decoding.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)  # stay a group even with one command
    for entry in sorted(entry_points(group="mdsd.commands"), key=lambda e: e.name):
        app.command(entry.name)(entry.load())
    return app


def main() -> None:
    """Run the command line: bad input is one line on standard error and exit status 2."""
    try:
        status = build()(standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except _USAGE_ERROR as error:
        _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except ModuleNotFoundError as error:
        _fail(f"this needs {error.name}, which is not installed: pip install 'mdsd[{_extra(error.name)}]'")
    except (ValueError, OSError, NotImplementedError) as error:
        _fail(str(error))


def _extra(module: str | None) -> str:
    root = (module or "").split(".")[0]
    if root in ("torch", "transformers", "gguf"):
        return "decode"
    if root in ("cvxpy", "highspy"):
        return "lp"
    return "cluster" if root in ("distributed", "dask") else "study"


def _fail(message: str, status: int = 2) -> None:
    line = " ".join(message.split())
    print(f"mdsd: {line}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
