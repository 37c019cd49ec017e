"""What `share.py` runs in processes of their own: it imports nothing of the tests.

hunt.py executed          of the runs on standard input, what each executes of the places with probes (`probes.py`)
hunt.py until-one-fails   for each mutant on standard input, runs one after the other until one fails

A run is a scenario's name and a seed. Each line of standard input and output is JSON.
"""

from __future__ import annotations

import builtins
import functools
import gc
import json
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

#: What the probes count in: COUNTER of `probes.py`. Some are executed as the product is imported.
_EXECUTIONS = Counter[str]()
builtins.executions_of_mutants = _EXECUTIONS  # type: ignore[attr-defined]

from rmq_actors.testing.scenarios import SCENARIOS, run_case  # noqa: E402 - see above
from sim_net import many_runs  # noqa: E402

_AT_IMPORT = Counter(_EXECUTIONS)

Run = tuple[str, int]


def executed(runs: Sequence[Run]) -> None:
    """Print for each run how often it executes which place, and its CPU time."""
    for name, seed in runs:
        _EXECUTIONS.clear()
        began = time.process_time()
        outcome = run_case(SCENARIOS[name].case(seed), SCENARIOS[name]).outcome
        told = {"run": [name, seed], "outcome": outcome, "cpu_s": round(time.process_time() - began, 3)}
        print(json.dumps({**told, "executed": _EXECUTIONS + _AT_IMPORT}), flush=True)


def until_one_fails(runs: Sequence[Run], cpu_s: float, endless_s: float) -> None:
    """Print which runs were made within `cpu_s`, and how the last of them failed, if it did."""
    made: list[Run] = []

    def tell(how: str) -> None:
        used_s = time.process_time() - began
        print(json.dumps({"made": made, "how": how[:200], "cpu_s": used_s}), flush=True)

    def endless(_signal: int, _frame: FrameType | None) -> None:
        tell(f"has no end in {endless_s:g} s of CPU time")
        os._exit(0)

    signal.signal(signal.SIGPROF, endless)
    began = time.process_time()
    for name, seed in runs:
        if time.process_time() - began > cpu_s:
            break
        made.append((name, seed))
        signal.setitimer(signal.ITIMER_PROF, endless_s)
        try:
            result = run_case(SCENARIOS[name].case(seed), SCENARIOS[name])
        except BaseException as error:  # noqa: BLE001 - whatever it is: a run must not raise
            tell(f"raises {type(error).__name__}: {error}")
            return
        if result.outcome != "passed":
            tell(f"{result.outcome}: {result.failure}")
            return
    tell("")


def _mutate(texts: Mapping[str, str], functions: Sequence[FunctionType]) -> None:
    """Give functions the code that they have in the changed texts. Raises ValueError if no code differs in one."""
    for path, text in texts.items():
        other = _other_code(path, text)
        count = 0
        for function in functions:
            own = function.__code__
            if own.co_filename == path and (own.co_qualname, own.co_firstlineno) in other:
                function.__code__ = other[own.co_qualname, own.co_firstlineno]
                count += 1
        if not count:
            raise ValueError(f"no function of {path} has other code")


@functools.lru_cache
def _other_code(path: str, text: str) -> Mapping[tuple[str, int], CodeType]:
    """Of each function that has other code in the text than in the file: by name and first line in the file."""
    now = _by_name(compile(Path(path).read_text(), path, "exec"))
    then = _by_name(compile(text, path, "exec"))
    return {
        (now[key].co_qualname, now[key].co_firstlineno): then[key]
        for key in now.keys() & then.keys()
        if _essence(now[key]) != _essence(then[key])
    }


def _by_name(module: CodeType) -> dict[tuple[str, int], CodeType]:
    """By qualified name, and which of those with that name it is: a property and its setter have one."""
    found: dict[tuple[str, int], CodeType] = {}
    count = Counter[str]()
    for code in _codes(module):
        found[code.co_qualname, count[code.co_qualname]] = code
        count[code.co_qualname] += 1
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _essence(code: CodeType) -> tuple[object, ...]:
    """What it does, wherever it stands in its file."""
    consts = [_essence(each) if isinstance(each, CodeType) else (type(each), each) for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_exceptiontable, consts


def _in_a_child(told: Mapping[str, Any], functions: Sequence[FunctionType]) -> None:
    """The product is imported once; each mutant has a copy of this process."""
    for path, text in told["texts"].items():
        _other_code(path, text)  # once for all children
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if status:
            how = f"a run ends the process with status {os.waitstatus_to_exitcode(status)}"
            print(json.dumps({"made": [], "how": how}), flush=True)
        return
    try:
        _mutate(told["texts"], functions)
    except ValueError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        os._exit(0)
    until_one_fails(told["runs"], told["cpu_s"], told["endless_s"])
    os._exit(0)


def main() -> None:
    """Do what standard input says, line by line."""
    logging.getLogger("rmq_actors").setLevel(logging.CRITICAL)
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    with many_runs():
        for line in sys.stdin:
            told = json.loads(line)
            if sys.argv[1] == "executed":
                executed(told["runs"])
            elif told["texts"]:
                _in_a_child(told, functions)
            else:
                until_one_fails(told["runs"], told["cpu_s"], told["endless_s"])


if __name__ == "__main__":
    main()
