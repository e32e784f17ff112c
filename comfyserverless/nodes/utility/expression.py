"""Evaluate a formula of a prompt: numbers, names, operators and a few functions of mathematics, nothing else.

The formula is parsed by Python's grammar and walked here; it cannot reach anything, and what it costs is
bounded.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from comfyserverless.core.errors import PromptError

Number = int | float

_MAX_CHARS = 4096
_MAX_DEPTH = 64
#: Whole numbers beyond it take time and memory that grow with every operation.
_MAX_BITS = 4096
_MAX_DIGITS = 400


class _Refused(Exception):
    """A part of a formula cannot be evaluated; column: where it begins, from 0."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(message)
        self.column = column


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        bits = abs(base).bit_length() * max(exponent, 0)
        if abs(base) > 1 and bits > _MAX_BITS:
            raise OverflowError("the power is too large")
    return base**exponent


def _shift_left(value: int, count: int) -> int:
    if count > _MAX_BITS:
        raise OverflowError("the shift is too large")
    return value << count


def _round(value: Any, digits: int = 0) -> Any:
    if abs(digits) > _MAX_DIGITS:
        raise OverflowError(f"round takes at most {_MAX_DIGITS} digits")
    return round(value, digits) if digits else round(value)


def _total(*values: Any) -> Any:
    return sum(values[0] if len(values) == 1 and isinstance(values[0], list) else values)


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: _power,
        ast.BitAnd: operator.and_,
        ast.BitOr: operator.or_,
        ast.BitXor: operator.xor,
        ast.LShift: _shift_left,
        ast.RShift: operator.rshift,
    }
)
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = MappingProxyType(
    {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_}
)
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)
FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "sum": _total,
        "min": min,
        "max": max,
        "abs": abs,
        "round": _round,
        "int": int,
        "float": float,
        "bool": bool,
        "pow": _power,
        "len": len,
        **{
            name: getattr(math, name)
            for name in ("sqrt", "ceil", "floor", "trunc", "log", "log2", "log10", "exp", "hypot")
        },
        **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")},
    }
)
"""What a formula may call."""

CONSTANTS: Mapping[str, Number] = MappingProxyType({"pi": math.pi, "tau": math.tau})


def evaluate(formula: str, names: Mapping[str, Number]) -> Number:
    """Return what a formula gives with these names; `values` stands for the list of all of them.

    Raises PromptError that says what is wrong and at which character.
    """
    if not formula.strip():
        raise PromptError("The expression is empty")
    if len(formula) > _MAX_CHARS:
        raise PromptError(f"The expression has {len(formula)} characters; {_MAX_CHARS} are allowed")
    text = " ".join(formula.split())
    try:
        tree = _parsed(text)
        result: Number | list[Number] = _Walk(names).value(tree.body, 0)
    except _Refused as exc:
        raise _problem(text, str(exc), exc.column) from exc
    except SyntaxError as exc:
        column = exc.offset - 1 if exc.offset else len(text)  # what is missing at the end has no offset
        raise _problem(text, exc.msg, column) from exc
    except (RecursionError, MemoryError, ValueError) as exc:
        raise PromptError(f"The expression cannot be read: {exc or type(exc).__name__}") from exc
    if isinstance(result, list) or (isinstance(result, float) and not math.isfinite(result)):
        raise PromptError(f"The expression {_brief(text)} gives {result}, not a finite number")
    return result


def _parsed(text: str) -> ast.Expression:
    with warnings.catch_warnings():  # Python's advice on style is for its own code, not for the server's log
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(text, mode="eval")


class _Walk:
    """Evaluate the nodes of one formula."""

    def __init__(self, names: Mapping[str, Number]) -> None:
        self._names = {**CONSTANTS, **names}
        self._values = list(names.values())

    def value(self, node: ast.expr, depth: int) -> Any:
        """Return the value of a part of the formula. Raises _Refused."""
        if depth > _MAX_DEPTH:
            raise _Refused("it is nested too deeply", node.col_offset)
        try:
            result = self._evaluated(node, depth + 1)
        except (ArithmeticError, TypeError, ValueError) as exc:
            raise _Refused(str(exc) or type(exc).__name__, node.col_offset) from exc
        if isinstance(result, complex):
            raise _Refused("the result is no real number", node.col_offset)
        if isinstance(result, int) and result.bit_length() > _MAX_BITS:
            raise _Refused("the number is too large", node.col_offset)
        return result

    def _evaluated(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() as constant):
                return constant
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.BinOp(left=left, op=op, right=right):
                return self._combined(node, type(op), self._all([left, right], depth))
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](self.value(operand, depth))
            case ast.Compare():
                return self._compared(node, depth)
            case ast.BoolOp(op=op, values=parts):
                return self._joined(isinstance(op, ast.And), parts, depth)
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.value(body if self.value(test, depth) else other, depth)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
                return FUNCTIONS[name](*self._all(arguments, depth))
            case _:
                return self._no(node)

    def _named(self, node: ast.expr, name: str) -> Any:
        if name == "values":
            return self._values
        if name not in self._names:
            known = ", ".join(self._names)
            raise _Refused(f"there is no {_brief(name)}; known are {known}", node.col_offset)
        return self._names[name]

    def _all(self, nodes: Sequence[ast.expr], depth: int) -> list[Any]:
        return [self.value(node, depth) for node in nodes]

    def _combined(self, node: ast.expr, op: type[ast.operator], sides: list[Any]) -> Any:
        if op not in _BINARY:
            return self._no(node)
        if any(isinstance(side, list) for side in sides):
            raise _Refused("`values` is for functions, such as sum(values)", node.col_offset)
        return _BINARY[op](*sides)

    def _compared(self, node: ast.Compare, depth: int) -> bool:
        left = self.value(node.left, depth)
        for op, part in zip(node.ops, node.comparators, strict=True):
            if type(op) not in _COMPARISONS:
                return bool(self._no(node))
            right = self.value(part, depth)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True

    def _joined(self, is_and: bool, parts: Sequence[ast.expr], depth: int) -> Any:
        result: Any = is_and
        for part in parts:
            result = self.value(part, depth)
            if bool(result) != is_and:
                break
        return result

    def _no(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            known = ", ".join(FUNCTIONS)
            raise _Refused(f"there is no function {_brief(node.func.id)}; known are {known}", node.col_offset)
        raise _Refused("this is not allowed in an expression", node.col_offset)


def _problem(text: str, message: str, column: int) -> PromptError:
    return PromptError(f"The expression {_brief(text)} is wrong at character {column + 1}: {message}")


def _brief(text: str, chars: int = 200) -> str:
    return repr(text if len(text) <= chars else text[:chars] + "...")
