"""`fleet completion`: scripts that complete commands and options, made from the parser."""

from __future__ import annotations

import argparse
import shlex
import sys

from fleet.cli.outcome import DONE
from fleet.cli.parser import Parser, build_parser

SHELLS = ("bash", "zsh", "fish")


def add_commands(parser: Parser) -> None:
    completion = parser.command(
        "completion",
        "print a completion script for a shell",
        run,
        'bash: eval "$(fleet completion bash)" in ~/.bashrc\n'
        'zsh:  eval "$(fleet completion zsh)" in ~/.zshrc, after compinit\n'
        "fish: fleet completion fish > ~/.config/fish/completions/fleet.fish",
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    sys.stdout.write(script(args.shell))
    return DONE


def script(shell: str) -> str:
    """The completion script for a shell of `SHELLS`."""
    parser = build_parser()
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](parser)


def _options(parser: Parser) -> list[str]:
    return [name for action in parser.described() for name in action.option_strings]


def _valued(parser: Parser) -> list[str]:
    """Options that take a value."""
    return [n for a in parser.described() for n in a.option_strings if a.nargs != 0]


def _choices(parser: Parser) -> dict[str, list[str]]:
    """Values to offer: by option name, and under "" for the argument."""
    found: dict[str, list[str]] = {}
    for action in parser.described():
        if action.choices:
            for name in action.option_strings or [""]:
                found[name] = [str(choice) for choice in action.choices]
    return found


def _bash(parser: Parser) -> str:
    cases = []
    for name, command in parser.commands.items():
        words = [*_options(command), *_choices(command).get("", [])]
        for option, values in _choices(command).items():
            if option:
                cases.append(f"    {name}:{option}) words={shlex.quote(' '.join(values))} ;;")
        files = "".join(f"|{name}:{o}" for o in ("--attach", "--home", "--output", "-o") if o in _options(command))
        cases.append(f"    {files[1:]}) compopt -o default; return ;;")
        valued = [o for o in _valued(command) if o not in _choices(command) and f"|{name}:{o}" not in files]
        cases += [f"    {'|'.join(f'{name}:{o}' for o in valued)}) return ;;"] if valued else []
        cases.append(f"    {name}:*) words={shlex.quote(' '.join(words))} ;;")
    top = " ".join([*parser.commands, *_options(parser)])
    skip = "|".join(_valued(parser))
    return f"""\
_fleet() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} command= words= i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
    {skip}) ((i++)) ;;
    -*) ;;
    *) command=${{COMP_WORDS[i]}}; break ;;
    esac
  done
  COMPREPLY=()
  case $command:$previous in
    :--home) compopt -o default; return ;;
    :--url|:--token) return ;;
    :*) words={shlex.quote(top)} ;;
{chr(10).join(cases)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _fleet fleet
"""


def _zsh(parser: Parser) -> str:
    commands = "\n".join(f"    {shlex.quote(f'{n}:{text}')}" for n, text in parser.summaries.items())
    cases = "\n".join(
        f"    {name}) _arguments {' '.join(_zsh_specs(command))} ;;" for name, command in parser.commands.items()
    )
    return f"""\
#compdef fleet
_fleet() {{
  local -a commands
  commands=(
{commands}
  )
  local line state
  _arguments -C {" ".join(s for s in _zsh_specs(parser))} '1: :->command' '*:: :->arguments'
  case $state in
  command) _describe command commands ;;
  arguments)
    case $line[1] in
{cases}
    esac ;;
  esac
}}
compdef _fleet fleet
"""


def _zsh_specs(parser: Parser) -> list[str]:
    specs = []
    for action in parser.described():
        text = (action.help or "").replace("[", "(").replace("]", ")").replace(":", ";")
        files = action.dest in ("attach", "home", "output")
        offer = f"({' '.join(map(str, action.choices))})" if action.choices else "_files" if files else " "
        value = "" if action.nargs == 0 else f":{action.dest}:{offer}"
        repeat = "*" if action.dest == "attach" else ""
        specs += [shlex.quote(f"{repeat}{name}[{text}]{value}") for name in action.option_strings]
        if not action.option_strings:
            specs.append(shlex.quote(f":{action.dest}:{offer}"))
    return specs


def _fish(parser: Parser) -> str:
    lines = ["complete -c fleet -f"]
    lines += [
        f"complete -c fleet -n __fish_use_subcommand -a {n} -d {_fish_quote(t)}" for n, t in parser.summaries.items()
    ]
    lines += _fish_options(parser, "__fish_use_subcommand")
    for name, command in parser.commands.items():
        lines += _fish_options(command, f"__fish_seen_subcommand_from {name}")
    return "\n".join(lines) + "\n"


def _fish_options(parser: Parser, condition: str) -> list[str]:
    lines = []
    for action in parser.described():
        line = f"complete -c fleet -n {_fish_quote(condition)}"
        line += "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in action.option_strings)
        offer = f" -a {_fish_quote(' '.join(map(str, action.choices)))}" if action.choices else ""
        if action.option_strings:
            takes = "" if action.nargs == 0 else " -r" + (" -F" if action.dest in ("attach", "home", "output") else "")
            lines.append(f"{line}{takes}{offer} -d {_fish_quote(action.help or '')}")
        elif offer:
            lines.append(f"{line}{offer}")
    return lines


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
