"""Parse texts to syntax trees, and show faults with their positions.

sqlglot reads the text as Spark SQL. Before that, texts that could slow it down or hide something
from a reader are refused: long texts, deep nesting, comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from queue_core.errors import BadSelector

#: The most characters of a selector or an order.
LONGEST = 1 << 16
#: The deepest nesting of brackets; sqlglot needs about thirty Python frames for each.
DEEPEST = 24

_SPARK = Dialect.get_or_raise("spark")
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
#: Words that begin a statement, whose rest sqlglot takes for one token; also names of columns.
_COMMANDS = _SPARK.tokenizer_class.COMMANDS
_SIGNS = {"NOT", "!", "-", "+", "~"}
#: Widest excerpt around a fault.
_EXCERPT = 60


@dataclass(frozen=True)
class SourceText:
    """The text of a selector or an order, or a part of it, with its tokens."""

    #: "selector" or "order", as errors name it.
    kind: str
    text: str
    tokens: Sequence[Token]

    @classmethod
    def of(cls, kind: str, text: str) -> SourceText:
        """Split into tokens; raises `BadSelector`."""
        if not isinstance(text, str):
            raise BadSelector(f"a {kind} is a text, not {type(text).__name__}")
        source = cls(kind, text, ())
        if len(text) > LONGEST:
            raise BadSelector(f"the {kind} has {len(text)} characters; use at most {LONGEST}")
        if not text.strip():
            raise BadSelector(f"the {kind} is empty; leave it out to take every message")
        try:
            tokens = _tokens(text)
        except SqlglotError as error:
            raise source._unreadable(error) from error
        source = replace(source, tokens=_with_quotes_joined(text, tokens))
        source._check()
        return source

    def tree(self) -> exp.Expression:
        """Parse the text as one expression; raises `BadSelector`."""
        parser = _SPARK.parser(error_level=ErrorLevel.IMMEDIATE)
        try:
            found = parser.parse_into(exp.Condition, list(self.tokens), self.text)
        except ParseError as error:
            raise self._misread(error) from error
        except RecursionError as error:
            raise self.fault("it is nested too deeply", *self.span()) from error
        except (SqlglotError, ValueError, TypeError, AttributeError, LookupError) as error:
            raise self.fault("it cannot be understood", *self.span()) from error
        if len(found) != 1 or not isinstance(found[0], exp.Expression):
            raise self.fault("it is not one condition", *self.span())
        return found[0]

    def parts(self) -> Iterator[SourceText]:
        """Split at commas outside of brackets; raises `BadSelector` for an empty part."""
        start = depth = 0
        for at, token in enumerate([*self.tokens, None]):
            if token is not None:
                depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
                if token.token_type != TokenType.COMMA or depth:
                    continue
            if start == at:
                where = self.tokens[min(at, len(self.tokens) - 1)]
                raise self.fault("something is missing at the comma", where.start, where.end)
            yield replace(self, tokens=self.tokens[start:at])
            start = at + 1

    def span(self) -> tuple[int, int]:
        """Return the positions of the first and the last character of the tokens."""
        if not self.tokens:
            return 0, len(self.text) - 1
        return self.tokens[0].start, self.tokens[-1].end

    def span_of(self, node: exp.Expression) -> tuple[int, int]:
        """Return the first and the last character of a part of the tree, as sqlglot knows them."""
        spans = [(p.meta["start"], p.meta["end"]) for p in node.walk() if "start" in p.meta]
        if "start" not in node.meta:
            words, first = _words(node), min(spans, default=(len(self.text), 0))[0]
            named = [t for t in self.tokens if t.text.upper() in words and t.start <= first]
            if named:
                nearest = named[-1] if spans else named[0]
                spans.append((nearest.start, nearest.end))
        if not spans:
            return self.span()
        return min(start for start, _ in spans), max(end for _, end in spans)

    def fault(self, message: str, start: int, end: int) -> BadSelector:
        """Return an error that shows the line of the fault, and carets below it."""
        before = self.text[:start]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1)
        content = self.text[start - column :].split("\n", 1)[0]
        content = "".join(c if c.isprintable() else " " for c in content)
        cut = max(0, column - _EXCERPT)
        shown = content[cut : column + _EXCERPT]
        carets = "^" * max(1, min(end - start + 1, len(shown) - (column - cut)))
        return BadSelector(
            f"{self.kind}, line {line}, column {column + 1}: {message}\n"
            f"  {shown}\n  {' ' * (column - cut)}{carets}"
        )

    def _check(self) -> None:
        """Refuse comments, a second statement and deep nesting; raises `BadSelector`."""
        at = 0
        signs = [0]  # how many signs in a row, before each open bracket and here
        for token in self.tokens:
            self._check_gap(at, token.start)
            at = token.end + 1
            if token.token_type == TokenType.SEMICOLON:
                raise self.fault("a ';' is not allowed here", token.start, token.end)
            if token.token_type in _OPENING:
                signs.append(0)
            elif token.token_type in _CLOSING and len(signs) > 1:
                signs.pop()
            if token.token_type != TokenType.STRING and token.text.upper() in _SIGNS:
                signs[-1] += 1
            elif token.token_type not in _OPENING:
                signs[-1] = 0
            if len(signs) + sum(signs) > DEEPEST:
                message = f"it is nested too deeply; {DEEPEST} levels are possible"
                raise self.fault(message, token.start, token.end)
        self._check_gap(at, len(self.text))

    def _check_gap(self, start: int, end: int) -> None:
        gap = self.text[start:end]
        if gap.strip():
            start += len(gap) - len(gap.lstrip())
            raise self.fault("a comment is not allowed here", start, start + len(gap.strip()) - 1)

    def _misread(self, error: ParseError) -> BadSelector:
        """Report where sqlglot stopped; it names the line and the last character's column."""
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        what = str(first.get("description", "it cannot be understood"))
        what = re.sub(r"Required keyword: .*", "something is missing here", what)
        what = what.replace("Invalid expression / Unexpected token", "this was not expected")
        end = self._offset(int(first.get("line") or 1), int(first.get("col") or 1))
        start = end - max(len(first.get("highlight") or ""), 1) + 1
        return self.fault(f"{what[0].lower()}{what[1:]}", max(start, 0), end)

    def _unreadable(self, error: SqlglotError) -> BadSelector:
        cause = error.__cause__ or error
        match = re.match(r"(.*?) from (\d+):(\d+)", str(cause))
        if match is None:
            return self.fault("it cannot be split into words", *self.span())
        end = self._offset(int(match[2]), int(match[3]))
        what = match[1].replace("Missing", "not closed, missing")
        return self.fault(f"{what[0].lower()}{what[1:]}", end, end)

    def _offset(self, line: int, column: int) -> int:
        lines = self.text.split("\n")
        before = sum(len(text) + 1 for text in lines[: line - 1])
        return max(0, min(before + column - 1, len(self.text) - 1))


def _words(node: exp.Expression) -> set[str]:
    """Return the first words of a node whose position sqlglot does not keep."""
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
        return {"SELECT", "WITH", "FROM", "VALUES", "EXISTS"}
    if isinstance(node, exp.Placeholder | exp.Parameter):
        return {"?", ":", "@", "$", "{", "${"}
    if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous | exp.Connector):
        return set(node.sql_names())
    if isinstance(node, exp.Interval | exp.Distinct | exp.Any):
        return {type(node).__name__.upper()}
    return set()


def _tokens(text: str) -> list[Token]:
    tokens = list(_SPARK.tokenize(text))
    if not tokens or tokens[0].token_type not in _COMMANDS:
        return tokens
    # Within brackets, it is a name.
    inside = list(_SPARK.tokenize(f"({text}"))[1:]
    return [
        Token(each.token_type, each.text, start=each.start - 1, end=each.end - 1) for each in inside
    ]


def _with_quotes_joined(text: str, tokens: list[Token]) -> list[Token]:
    """Join ``'it''s'``, which sqlglot reads as two texts, into one text with a quote, as in SQL."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if (
            last is not None
            and token.token_type == last.token_type == TokenType.STRING
            and token.start == last.end + 1
            and text[token.start] == text[last.end]
        ):
            quote = text[token.start]
            joined[-1] = Token(
                TokenType.STRING,
                last.text + quote + token.text,
                line=token.line,
                col=token.col,
                start=last.start,
                end=token.end,
            )
        else:
            joined.append(token)
    return joined
