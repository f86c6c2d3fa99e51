"""Renders a chat template, in a process of its own that may not use much: `python -P render.py < request.json`.

A template comes with a model's folder, so it is a program of a stranger's: jinja2's sandbox keeps it from Python's
objects, and the operating system's limits from taking time and memory. This file imports nothing of Genesis.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

MEMORY = 1 << 30
"""Bytes of the process's address space."""

SECONDS = 2
"""Processor time of the process, to which comes that of many chats."""

CHATS_A_SECOND = 64
"""A chat of dozens of messages takes a few milliseconds."""

MOST_TEXT = 4_000_000
"""Characters of a rendered chat."""


class TemplateError(Exception):
    """The template itself refuses the chat."""


def _refuse(message: Any) -> None:
    raise TemplateError(str(message))


def _json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
          sort_keys: bool = False) -> str:
    """The filter `tojson` with the options that transformers gives it; jinja2's own writes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _generation(environment: Any) -> Any:
    """The tag {% generation %}, which marks what an assistant wrote: the text inside as it is."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)
    return Generation


def compiled(template: str) -> Any:
    """The template, of jinja2; compiling takes longer than writing a chat.

    Raises:
        jinja2.TemplateError: it is malformed.
    """
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=["jinja2.ext.loopcontrols"])
    environment.add_extension(_generation(environment))
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form))
    environment.filters["tojson"] = _json
    return environment.from_string(template)


def render(template: Any, values: dict[str, Any]) -> str:
    """The text of a chat, by a compiled template.

    Raises:
        TemplateError: the template refuses it.
        jinja2.TemplateError: it does what the sandbox forbids.
    """
    parts, length = [], 0
    for part in template.generate(**values):
        parts.append(part)
        length += len(part)
        if length > MOST_TEXT:
            raise TemplateError(f"the chat is longer than {MOST_TEXT} characters")
    return "".join(parts)


def main() -> None:
    """Read a request, write {"texts": …} or {"error": …}."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    request = json.loads(sys.stdin.buffer.read())
    seconds = SECONDS + len(request["several"]) // CHATS_A_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        template = compiled(request["template"])
        answer: dict[str, Any] = {"texts": [render(template, values) for values in request["several"]]}
    except ImportError as error:
        answer = {"missing": str(error)}
    except MemoryError:
        answer = {"error": f"it takes more than {MEMORY >> 20} MB"}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
