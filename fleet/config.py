"""Settings: built-in < fleet.toml < environment < flags, each value with the place it came from.

`load` gives the `Settings` the rest of Fleet uses; `resolve` gives the same with provenance, for `fleet config`.
`python -m fleet.config docs/settings.md` writes the reference; a test checks that it has not drifted.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import msgspec

from events.errors import BadSetting
from fleet.settings_table import SETTINGS, Scalar, Setting

FILE_NAME = "fleet.toml"


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the gateway listens; `token` None means one is made for each stack."""

    host: str
    port: int
    token: str | None


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one turn may use, its children included."""

    calls: int
    tokens: int
    money_usd: float
    seconds: float
    depth: int
    children: int
    output_bytes: int


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How many Ray actor processes carry the logical actors, and how many turns one process runs at once."""

    session_actors: int
    turn_actors: int
    turn_width: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set, resolved and checked."""

    home: Path
    database_url: str | None
    model: str
    sub_model: str
    api_base: str | None
    mode: str
    sandbox: str
    ray_address: str | None
    max_parallel_model_calls: int
    log_level: str
    gateway: GatewaySettings
    budgets: BudgetSettings
    pools: PoolSettings


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as `fleet config` shows it: `value` is text with secrets masked, `source` is where it came from."""

    key: str
    value: str
    source: str
    doc: str


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and for each where its value came from."""

    settings: Settings
    explained: tuple[Explained, ...]


class _Found(msgspec.Struct, frozen=True):
    """A value and the place it was found in."""

    value: Scalar
    source: str


def load(
    flags: Mapping[str, Scalar] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Settings:
    """The settings in force; see `resolve`."""
    return resolve(flags, environ, cwd).settings


def explain(
    flags: Mapping[str, Scalar] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> tuple[Explained, ...]:
    """Each setting with its value, source and one line of documentation; see `resolve`."""
    return resolve(flags, environ, cwd).explained


def resolve(
    flags: Mapping[str, Scalar] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Resolution:
    """Read every layer and check each value.

    `flags` maps a key (`budgets.calls`) to what the command line said, None meaning not given. Raises `BadSetting` for
    an unknown key or an impossible value, naming the file and line, variable or flag it stands in.
    """
    environ = os.environ if environ is None else environ
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    for key in given:
        _known(key, f"flag --{key}")
    project = _from_file((cwd or Path.cwd()) / FILE_NAME)
    home = _home(given, environ)
    personal = _from_file(home / FILE_NAME)
    if (home / FILE_NAME).resolve() == ((cwd or Path.cwd()) / FILE_NAME).resolve():
        project = {}
    _refuse_personal(project)
    found = {s.key: _first(s, given, environ, project, personal) for s in SETTINGS}
    found["home"] = _Found(str(home), found["home"].source)
    if found["sub_model"].value is None:
        found["sub_model"] = _Found(found["model"].value, "built-in: the same as model")
    values = {key: item.value for key, item in found.items()}
    return Resolution(
        settings=msgspec.convert(_nest(values), Settings, dec_hook=_path),
        explained=tuple(
            Explained(key=s.key, value=_shown(s, found[s.key].value), source=found[s.key].source, doc=s.doc)
            for s in SETTINGS
        ),
    )


def default_home(environ: Mapping[str, str]) -> Path:
    """The platform's data folder for Fleet: XDG_DATA_HOME where set, else the usual place under the home folder."""
    if xdg := environ.get("XDG_DATA_HOME"):
        return Path(xdg) / "fleet"
    try:
        user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    except RuntimeError as error:
        raise BadSetting("no home folder is known for this user; set FLEET_HOME to a writable folder") from error
    return user / ("Library/Application Support/fleet" if sys.platform == "darwin" else ".local/share/fleet")


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """FLEET_ variables that set nothing, each with the nearest one that does."""
    names = {s.variable for s in SETTINGS}
    strange = sorted(n for n in environ if n.startswith("FLEET_") and n not in names and not n.startswith("FLEET_X_"))
    return [f"{name}{_nearest(name, sorted(names))}" for name in strange]


def reference() -> str:
    """docs/settings.md."""
    rows = "\n".join(
        f"| `{s.key}` | `{s.variable}` | {_default(s)} | {s.doc}{_allowed(s)}{' †' if s.personal else ''} |"
        for s in SETTINGS
    )
    return f"""# Settings

Built-in < `fleet.toml` in `FLEET_HOME` < `fleet.toml` in the current folder < environment < flags. `fleet config` shows
each value and where it came from. A dotted key is a key in a table: `budgets.calls` is `calls` under `[budgets]`.

Settings marked † decide whom Fleet trusts, so a `fleet.toml` in the current folder may not set them: a folder received
from somebody else must not be able to switch the sandbox off or to send keys and sessions elsewhere.

Provider keys and addresses (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, …) are LiteLLM's own variables; MLflow is set by
`MLFLOW_TRACKING_URI`.

This page is generated by `make docs`.

| key | variable | built-in | what it is |
|---|---|---|---|
{rows}
"""


def _home(given: Mapping[str, Scalar], environ: Mapping[str, str]) -> Path:
    value = given.get("home") or environ.get("FLEET_HOME") or default_home(environ)
    home = Path(str(value)).expanduser()
    if "\0" in str(home) or "\n" in str(home):
        raise BadSetting("FLEET_HOME must be a plain path")
    return Path(os.path.abspath(home))


def _first(
    setting: Setting,
    given: Mapping[str, Scalar],
    environ: Mapping[str, str],
    project: Mapping[str, _Found],
    personal: Mapping[str, _Found],
) -> _Found:
    if setting.key in given:
        source = f"flag --{setting.key}"
        return _Found(setting.check(given[setting.key], source), source)
    if text := environ.get(setting.variable, "").strip():
        source = f"environment {setting.variable}"
        return _Found(setting.check(text, source), source)
    for layer in (project, personal):
        if setting.key in layer:
            found = layer[setting.key]
            return _Found(setting.check(found.value, found.source), found.source)
    return _Found(setting.default, "built-in")


def _from_file(path: Path) -> dict[str, _Found]:
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"cannot read {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path} is not valid TOML: {error}") from error
    found: dict[str, _Found] = {}
    for key, value in _flatten(tables):
        source = f"{path}:{_line(text, key)}"
        _known(key, source)
        if key == "home":
            raise BadSetting(f"{source}: home cannot be set in a file; set FLEET_HOME")
        if not isinstance(value, str | int | float):
            raise BadSetting(f"{source}: {key} must be one value, not {value!r}")
        found[key] = _Found(value, source)
    return found


def _flatten(tables: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    flat: list[tuple[str, object]] = []
    for name, value in tables.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            flat.extend(_flatten(value, f"{key}."))
        else:
            flat.append((key, value))
    return flat


def _line(text: str, key: str) -> int:
    """The line a key stands in; 1 where the spelling is unusual (quoted or dotted keys)."""
    table, _, name = key.rpartition(".")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.strip("[] \t")
        elif stripped.partition("=")[0].strip() in (name if current == table else key, key) and "=" in stripped:
            return number
    return 1


def _known(key: str, source: str) -> None:
    keys = [s.key for s in SETTINGS]
    if key not in keys:
        raise BadSetting(f"{source}: unknown setting {key!r}{_nearest(key, keys)}")


def _refuse_personal(project: Mapping[str, _Found]) -> None:
    for setting in SETTINGS:
        if setting.personal and setting.key in project:
            raise BadSetting(
                f"{project[setting.key].source}: {setting.key} may not be set by a project's {FILE_NAME}; "
                f"set {setting.variable}, or put it into {FILE_NAME} in FLEET_HOME"
            )


def _path(kind: type, value: object) -> Path:
    return Path(str(value))


def _nearest(name: str, names: list[str]) -> str:
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "; `fleet config` lists them"


def _nest(values: Mapping[str, Scalar]) -> dict[str, object]:
    nested: dict[str, object] = {}
    tables: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        table, dot, name = key.partition(".")
        if dot:
            nested[table] = tables.setdefault(table, {})
            tables[table][name] = value
        else:
            nested[key] = value
    return nested


def _shown(setting: Setting, value: Scalar) -> str:
    if value is None:
        return "not set"
    return setting.masked(str(value)) if setting.secret else str(value)


def _default(setting: Setting) -> str:
    return setting.default_doc or ("not set" if setting.default is None else f"`{setting.default}`")


def _allowed(setting: Setting) -> str:
    return f" One of {', '.join(f'`{c}`' for c in setting.choices)}." if setting.choices else ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
