"""Options that users write as strings. One declaration parses and documents each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from queue_core.errors import BadOption, Invalid
from queue_core.values.names import nearest


class Option(NamedTuple):
    """One option: ``.option("maxMessagesPerTrigger", "1000")``."""

    #: In lowerCamelCase, like Spark's own; users can write it in any case.
    name: str
    #: Its effect, its unit, and its default behaviour; sentences for the documentation.
    about: str
    #: Turns the text into a value; raises `ValueError` with the allowed values.
    parse: Callable[[str], Any] = str
    default: Any = None


#: The address of the store.
STORE: tuple[Option, ...] = (
    Option(
        "path",
        "Folder of an embedded store; `~` and variables such as `$HOME` are expanded. `load()` and "
        "`start()` take it as an argument too. Without `path`, `catalog` and `storage`, the "
        "environment of the driver has it: `IGNIS_PATH`, or `IGNIS_CATALOG` and `IGNIS_STORAGE`. "
        "Set it before the Spark session begins.",
    ),
    Option("catalog", "Database URL of the catalog. Set it with `storage`, instead of `path`."),
    Option(
        "storage",
        "Folder or `pyarrow.fs` URI of the segments. Set it with `catalog`. Put the credentials of "
        "a bucket into the environment (`AWS_ACCESS_KEY_ID`, …), because Spark may show options.",
    ),
)


def parse(
    given: Mapping[str, str],
    known: Iterable[Option],
    where: str,
    others: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """
    Return the value of every known option, by its name.

    *others*: other names, in lower case, with the option that a user of the name means. Raises one
    `BadOption` that lists all unknown and malformed options.
    """
    options = {option.name.lower(): option for option in known}
    values = {option.name: option.default for option in options.values()}
    faults = []
    for name, text in given.items():
        option = options.get(name.lower())
        if option is None:
            names = [option.name for option in options.values()]
            meant = (others or {}).get(name.lower(), name)
            faults.append(f"unknown option {name!r}{nearest(meant, names)}")
            continue
        try:
            values[option.name] = option.parse(text)
        except Invalid as error:
            said = str(error)
            named = said.startswith(f"{option.name}=")
            faults.append(said if named else f"{option.name}={text!r}: {said}")
        except ValueError as error:
            faults.append(f"{option.name}={text!r}: use {error}")
    if faults:
        raise BadOption(f"{where}: {'; '.join(faults)}")
    return values


def camel(name: str) -> str:
    """Return the option that has the name of a field or a setting."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def by_field(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of options whose names are those of fields, by field."""
    return {name: values[camel(name)] for name in names if camel(name) in values}


def is_set(value: object) -> bool:
    """Return whether a parsed option asks for something; 0 does."""
    return value is not None and value is not False


def one_of(*allowed: str) -> Callable[[str], str]:
    """Return a parser of one of *allowed*, in any case."""
    words = {word.lower(): word for word in allowed}

    def check(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"{', '.join(allowed)}{nearest(text, allowed)}")
        return words[text.lower()]

    return check


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a parser of a whole number within bounds, such as ``1_000``."""

    def check(text: str) -> int:
        allowed = f"a whole number, {low} or more" if high is None else f"{low} to {high}"
        try:
            value = int(text)
        except ValueError:
            raise ValueError(allowed) from None
        if value < low or (high is not None and value > high):
            raise ValueError(allowed)
        return value

    return check


def size(text: str) -> int:
    """Parse a number of bytes: ``1048576``, ``64k``, ``16m``, ``1g``."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    body = text.strip().lower().removesuffix("b")
    factor = units.get(body[-1:], 1)
    try:
        value = int(body[:-1] if factor > 1 else body) * factor
    except ValueError:
        raise ValueError("a number of bytes such as 1048576, 64k, 16m or 1g") from None
    if value < 1:
        raise ValueError("at least 1 byte")
    return value


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def words(text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise ValueError("one or more names, separated by commas")
    return found


def of_calls(name: str, text: str, makers: dict[str, Callable[..., Any]], form: str) -> list[Any]:
    """
    Return the values of a text such as ``limit(in_flight=2), limit('customer', in_flight=1)``.

    They are literals, or calls of *makers* with such values. Raises `BadOption`, whose text begins
    with *name*, what the text is for, and ends with *form*, how to write it.
    """
    # Not at the top: a query waits for imports, and the text is read once.
    import ast

    def value(node: Any) -> Any:
        if not isinstance(node, ast.Call):
            for each in ast.walk(node):
                if isinstance(each, ast.Name | ast.Attribute):
                    raise BadOption(f"{ast.unparse(each)} is not in quotes; {form}")
            try:
                return ast.literal_eval(node)
            except ValueError:
                raise BadOption(f"{ast.unparse(node)} is not a value; {form}") from None
        maker = node.func.id if isinstance(node.func, ast.Name) else None
        if maker not in makers:
            raise BadOption(f"{ast.unparse(node.func)} is unknown; {form}")
        given = {each.arg: value(each.value) for each in node.keywords if each.arg is not None}
        if len(given) < len(node.keywords):
            raise BadOption(form)
        return makers[maker](*map(value, node.args), **given)

    try:
        body = ast.parse(f"({text.strip()}\n,)" if text.strip() else "()", mode="eval").body
        if not isinstance(body, ast.Tuple):
            raise BadOption(form)
        return [value(each) for each in body.elts]
    except BadOption as error:
        raise BadOption(f"{name}={text!r}: {error}") from error
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError) as error:
        raise BadOption(f"{name}={text!r}: {error}; {form}") from error


#: The name under which instances meet in ZooKeeper by default.
CLIENT_ID = "ignis"
