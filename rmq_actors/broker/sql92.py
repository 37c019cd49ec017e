"""SQL92 expressions of consumers: from a text to a filter of messages (SelectorParser, ExpressionMessageFilter).

The grammar is RocketMQ 4.9's, given to Lark, which is in the extra [server]: import this module where
`enablePropertyFilter` is on. What follows a complete expression is an error here; RocketMQ passes over it, so that a
consumer gets more than it has asked for.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

import attrs
from lark import Lark, Transformer, UnexpectedInput, UnexpectedToken, v_args
from lark.exceptions import LarkError, VisitError

from rmq_actors.protocols import selector
from rmq_actors.protocols.selector import Expression, NoAnswer
from rmq_actors.store.dispatch.consume_queue_ext import CqExtUnit
from rmq_actors.wire.properties import decode_properties
from rmq_actors.wire.record import text_span

_log = logging.getLogger(__name__)

SQL92: Final = "SQL92"
#: A longer one is refused. To compile one of this length takes up to 100 ms, for which nobody else is served.
EXPRESSION_CHARS_MAX: Final = 4_096
#: What a filter may do for one read: characters of the expression and bytes of properties, of each message that it
#: looks at, and something more. A read of 800 usual messages is below; the longest expression gets through 97 of them,
#: in up to 50 ms.
WORK_MAX: Final = 400_000
_WORK_OF_EACH: Final = 50
#: How many expressions are kept with what came of them.
_CACHE_SIZE: Final = 1_000

_GRAMMAR = r"""
start: or_expression
?or_expression: and_expression (_OR and_expression)* -> any_of
?and_expression: equality (_AND equality)* -> all_of
?equality: comparison
    | equality "=" comparison -> equal
    | equality "<>" comparison -> not_equal
    | equality _IS _NULL -> is_null
    | equality _IS _NOT _NULL -> is_not_null
?comparison: unary
    | comparison ">" unary -> greater
    | comparison ">=" unary -> greater_or_equal
    | comparison "<" unary -> less
    | comparison "<=" unary -> less_or_equal
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN texts -> is_in
    | comparison _NOT _IN texts -> is_not_in
texts: "(" STRING ("," STRING)* ")"
?unary: "+" unary
    | "-" unary -> negate
    | _NOT unary -> negation
    | primary
?primary: "(" or_expression ")"
    | STRING -> text
    | DECIMAL -> whole_number
    | FLOAT -> floating_point
    | _TRUE -> true
    | _FALSE -> false
    | _NULL -> null
    | ID -> property

_NOT.2: /NOT(?![a-z0-9_$])/i
_AND.2: /AND(?![a-z0-9_$])/i
_OR.2: /OR(?![a-z0-9_$])/i
_BETWEEN.2: /BETWEEN(?![a-z0-9_$])/i
_IN.2: /IN(?![a-z0-9_$])/i
_TRUE.2: /TRUE(?![a-z0-9_$])/i
_FALSE.2: /FALSE(?![a-z0-9_$])/i
_NULL.2: /NULL(?![a-z0-9_$])/i
_IS.2: /IS(?![a-z0-9_$])/i
FLOAT.2: /[0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
DECIMAL: /0|[1-9][0-9]*l?/i
STRING: /'(''|[^'])*'/
ID: /[a-z_$][a-z0-9_$]*/i
LINE_COMMENT.3: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


class CompileError(ValueError):
    """What a consumer has subscribed is no expression of SQL92 as RocketMQ knows it; says what and where."""


@v_args(inline=True)
class _Build(Transformer[Any, Expression]):
    """Makes a `selector.Expression` of each rule of the grammar, from the leaves up."""

    def start(self, whole: Expression) -> Expression:
        return selector.condition(whole)

    def any_of(self, *operands: Expression) -> Expression:
        return selector.any_of(operands)

    def all_of(self, *operands: Expression) -> Expression:
        return selector.all_of(operands)

    def equal(self, left: Expression, right: Expression) -> Expression:
        return selector.equal(left, right)

    def not_equal(self, left: Expression, right: Expression) -> Expression:
        return selector.negation(selector.equal(left, right))

    def is_null(self, operand: Expression) -> Expression:
        return selector.is_null(operand)

    def is_not_null(self, operand: Expression) -> Expression:
        return selector.negation(selector.is_null(operand))

    def greater(self, left: Expression, right: Expression) -> Expression:
        return selector.ordered(left, right, lambda sign: sign > 0)

    def greater_or_equal(self, left: Expression, right: Expression) -> Expression:
        return selector.ordered(left, right, lambda sign: sign >= 0)

    def less(self, left: Expression, right: Expression) -> Expression:
        return selector.ordered(left, right, lambda sign: sign < 0)

    def less_or_equal(self, left: Expression, right: Expression) -> Expression:
        return selector.ordered(left, right, lambda sign: sign <= 0)

    def between(self, operand: Expression, low: Expression, high: Expression) -> Expression:
        return selector.between(operand, low, high)

    def not_between(self, operand: Expression, low: Expression, high: Expression) -> Expression:
        return selector.not_between(operand, low, high)

    def texts(self, *literals: str) -> list[str]:
        return [_unquoted(each) for each in literals]

    def is_in(self, operand: Expression, texts: list[str]) -> Expression:
        return selector.is_in(operand, texts)

    def is_not_in(self, operand: Expression, texts: list[str]) -> Expression:
        return selector.is_in(operand, texts, is_not=True)

    def negate(self, operand: Expression) -> Expression:
        return selector.negate(operand)

    def negation(self, operand: Expression) -> Expression:
        return selector.negation(operand)

    def text(self, quoted: str) -> Expression:
        return selector.literal(_unquoted(quoted))

    def whole_number(self, digits: str) -> Expression:
        return selector.whole_number(str(digits))

    def floating_point(self, digits: str) -> Expression:
        return selector.floating_point(str(digits))

    def true(self) -> Expression:
        return selector.literal(True)

    def false(self) -> Expression:
        return selector.literal(False)

    def null(self) -> Expression:
        return selector.literal(None)

    def property(self, name: str) -> Expression:
        return selector.property_value(str(name))


def _unquoted(quoted: str) -> str:
    return quoted[1:-1].replace("''", "'")


#: Lark's other lexers take a word such as AND for an ID where no AND may stand.
_PARSER = Lark(_GRAMMAR, parser="lalr", lexer="basic", transformer=_Build())


def compile_expression(text: str) -> Expression:
    """The condition that an expression states. Raises `CompileError`."""
    if len(text) > EXPRESSION_CHARS_MAX:
        raise CompileError(f"the expression has {len(text)} characters: at most {EXPRESSION_CHARS_MAX} are allowed")
    found = _compiled(text)
    if isinstance(found, str):
        raise CompileError(found)
    return found


@functools.lru_cache(_CACHE_SIZE)
def _compiled(text: str) -> Expression | str:
    """The condition, or what is wrong: a consumer with a wrong expression pulls again and again."""
    try:
        return _PARSER.parse(text)  # type: ignore[return-value]  # a transformer is within the parser
    except UnexpectedInput as error:
        at = error.pos_in_stream or 0
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        where = "at its end" if is_end else f"at {text[at : at + 20]!r}"
        return f"the expression {text[:100]!r} is wrong {where}"
    except VisitError as error:
        return f"the expression {text[:100]!r} is wrong: {error.orig_exc}"
    except (LarkError, ValueError) as error:
        return f"the expression {text[:100]!r} is wrong: {error}"


@attrs.define(eq=False, repr=False)
class Sql92Filter:
    """Lets messages pass whose properties meet a condition. One for which it has no answer does not pass.

    It is made for one read, and counts what that costs: nobody else is served meanwhile.
    """

    expression: Expression
    _expression_chars: int
    _work: int = attrs.field(default=0, init=False)

    @classmethod
    def of(cls, text: str) -> Sql92Filter:
        """The filter of an expression. Raises `CompileError`."""
        return cls(compile_expression(text), len(text))

    @property
    def is_exhausted(self) -> bool:
        """See `MessageFilter`."""
        return self._work >= WORK_MAX

    def is_matched_by_consume_queue(self, tags_code: int | None, unit: CqExtUnit | None) -> bool:
        """See `MessageFilter`. A queue's entry says nothing of properties."""
        return True

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """See `MessageFilter`."""
        _, (begin, end) = text_span(record, 0)
        self._work += _WORK_OF_EACH + self._expression_chars + end - begin
        try:
            return self.expression.matches(decode_properties(bytes(record[begin:end])))
        except NoAnswer as error:
            _log.debug("a message has no answer to an expression: %s", error)
            return False
