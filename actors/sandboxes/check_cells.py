"""Conformance: what cells compute, print, call and submit, and how they fail."""

from __future__ import annotations

import asyncio

from actors.sandboxes.check import PROCESS, box, needs, reading, writing
from actors.sandboxes.contract import HostCall, HostCallFailed, Json, Printed, SandboxProvider


@needs()
async def namespace_lives_on(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        assert it.sandbox.sandbox_id == "check"
        assert it.sandbox.backend == provider.name
        assert await it.value("x = 20") is None
        assert await it.value("def double(n):\n    return 2 * n\ndouble(x) + 2") == 42
        assert await it.value("double(y['z'][0])", variables={"y": {"z": [4]}}) == 8
        assert await it.value("y") == {"z": [4]}
        assert await it.value("__name__") == "__main__"
        assert await it.value("") is None


@needs()
async def values_are_json_or_repr(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        assert await it.value("{'a': [1, 2.5, None, True, 'é']}") == {"a": [1, 2.5, None, True, "é"]}
        assert await it.value("{1, 2}") == "{1, 2}"
        assert await it.value("float('nan')") == "nan"
        assert await it.value("2 ** 100") == 2**100
        shown = await it.value("object()")
        assert isinstance(shown, str)
        assert shown.startswith("<object")
        huge = await it.value("[object] * 1_000_000")
        assert isinstance(huge, str)
        assert len(huge) < 50_000
        assert await it.value("None") is None


@needs()
async def large_variables_arrive(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        large = "é" * 3_000_000
        assert await it.value("len(large), large[-1]", variables={"large": large}) == [3_000_000, "é"]


@needs()
async def failures_are_results(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.run("kept = 'kept'")
        error = await it.error("def f():\n    return 1 / 0\nf()")
        assert (error.type_name, error.message) == ("ZeroDivisionError", "division by zero")
        assert "return 1 / 0" in error.traceback
        assert "<driver>" not in error.traceback
        assert "guest.py" not in error.traceback
        assert (await it.error("1 +")).type_name == "SyntaxError"
        assert (await it.error("a\x00b")).type_name in ("SyntaxError", "ValueError")
        assert (await it.error("exit()")).type_name == "SystemExit"
        assert (await it.error("import sys\nsys.exit(3)")).type_name == "SystemExit"
        assert (await it.error("raise KeyboardInterrupt")).type_name == "KeyboardInterrupt"
        assert (await it.error("def f():\n    f()\nf()")).type_name == "RecursionError"
        assert (await it.error("raise BaseException('b')")).type_name == "BaseException"
        assert (await it.error("input()")).type_name == "EOFError"
        chained = await it.error("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e")
        assert "KeyError" in chained.traceback
        assert await it.value("kept") == "kept"


@needs()
async def hostile_exceptions_are_described(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        error = await it.error("class E(Exception):\n    def __str__(self): raise ValueError\nraise E")
        assert error.type_name == "E"
        error = await it.error("raise ValueError('x' * 10_000_000)")
        assert len(error.traceback) <= 20_000
        assert error.traceback.rstrip().endswith("x")
        assert len(error.message) <= 20_000
        error = await it.error("raise ValueError('\\ud800')")
        assert error.message == "\\ud800"


@needs()
async def submit_is_exact_and_typed(provider: SandboxProvider) -> None:
    outputs = [("answer", "str"), ("count", "int")]
    async with box(provider) as it:
        for code in ("SUBMIT('a', 1)", "SUBMIT('a', count=1)", "SUBMIT(count=1, answer='a')"):
            result = await it.run(code + "\nraise ValueError('not reached')", outputs=outputs)
            assert result.status == "ok", result.error
            assert result.submitted == {"answer": "a", "count": 1}
        for code in (
            "SUBMIT('a')",
            "SUBMIT('a', 1, 2)",
            "SUBMIT('a', 1, other=2)",
            "SUBMIT('a', answer='b', count=1)",
            "SUBMIT(1, 1)",
            "SUBMIT('a', '1')",
            "SUBMIT('a', True)",
            "SUBMIT('a', 1.5)",
        ):
            error = await it.error(code, outputs=outputs)
            assert error.type_name == "TypeError", code
            assert "SUBMIT(answer: str, count: int)" in error.message, error.message
        every = [("s", "str"), ("i", "int"), ("f", "float"), ("b", "bool"), ("l", "list"), ("d", "dict"), ("x", "")]
        result = await it.run("SUBMIT('é', 2**80, 1.5, True, [1, (2,)], {'k': None}, None)", outputs=every)
        assert result.submitted == {
            "s": "é",
            "i": 2**80,
            "f": 1.5,
            "b": True,
            "l": [1, [2]],
            "d": {"k": None},
            "x": None,
        }
        assert (await it.run("1", outputs=outputs)).submitted is None
        assert (await it.error("SUBMIT(float('nan'))", outputs=[("x", "float")])).type_name == "ValueError"
        assert (await it.error("SUBMIT({1})", outputs=[("x", "")])).type_name == "TypeError"


@needs()
async def submit_is_not_caught_by_mistake(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        code = "for _ in range(3):\n    try:\n        SUBMIT(1)\n    except Exception:\n        pass\nx = 'went on'"
        result = await it.run(code, outputs=[("n", "int")])
        assert result.submitted == {"n": 1}
        assert await it.value("'x' in globals()") is False


@needs()
async def submit_takes_any_size_up_to_its_limit(provider: SandboxProvider) -> None:
    async with box(provider, result_bytes=8 << 20) as it:
        result = await it.run("SUBMIT('é' * 3_000_000)", outputs=[("text", "str")])
        assert result.submitted == {"text": "é" * 3_000_000}
        error = await it.error("SUBMIT('x' * (9 << 20))", outputs=[("text", "str")])
        assert error.type_name == "ValueError"
        assert "limit" in error.message
        assert await it.value("1") == 1


@needs()
async def host_functions_are_globals(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        it.answers["__dspy_call__"] = lambda **kwargs: kwargs
        it.answers["large"] = lambda: "é" * 2_000_000
        assert await it.value("echo(1, [2], k={'v': 'é'})") == [[1, [2]], {"k": {"v": "é"}}]
        assert it.calls == [HostCall(0, "echo", [1, [2]], {"k": {"v": "é"}})]
        assert await it.value("globals()['__dspy_call__'](a=1)") == {"a": 1}
        assert await it.value("len(large())") == 2_000_000
        assert await it.value("[echo(n)[0][0] for n in range(3)]", functions=[]) == [0, 1, 2]
        assert [call.ordinal for call in it.calls] == [0, 1, 2]
        assert (await it.error("echo({1})")).type_name == "TypeError"
        assert (await it.error("echo('\\ud800')")).type_name in ("ValueError", "UnicodeEncodeError", "TypeError")
        assert it.calls == []


@needs()
async def host_failures_are_raised_in_the_calling_line(provider: SandboxProvider) -> None:
    def fail(type_name: str) -> Json:
        raise HostCallFailed(type_name, "too many calls")

    async with box(provider) as it:
        it.answers["fail"] = fail
        error = await it.error("x = 1\nfail('BudgetExhausted')")
        assert (error.type_name, error.message) == ("BudgetExhausted", "too many calls")
        assert "fail('BudgetExhausted')" in error.traceback
        assert "<driver>" not in error.traceback
        for builtin in ("ValueError", "KeyError", "TimeoutError"):
            assert await it.value(f"try:\n    fail('{builtin}')\nexcept {builtin} as e:\n    s = str(e)\ns") == (
                "too many calls"
            )
        assert (await it.error("fail('UnicodeDecodeError')")).message == "too many calls"
        assert (await it.error("fail('SystemExit')")).message == "too many calls"
        assert await it.value("echo(1)") == [[1], {}]


@needs()
async def host_values_are_bounded(provider: SandboxProvider) -> None:
    async with box(provider, result_bytes=1 << 20) as it:
        it.answers["large"] = lambda: "x" * (2 << 20)
        assert (await it.error("echo('x' * (2 << 20))")).type_name == "ValueError"
        assert (await it.error("large()")).type_name == "ValueError"
        assert await it.value("1") == 1


@needs()
async def calls_from_threads_are_in_flight_together(provider: SandboxProvider) -> None:
    together = asyncio.Event()

    async def meet(number: int) -> Json:
        if len(it.calls) == 8:
            together.set()
        await together.wait()  # only if all eight arrive does any return
        return number * 2

    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    doubled = list(pool.map(meet, range(8)))
doubled
"""
    async with box(provider) as it:
        it.answers["meet"] = meet
        assert await it.value(code) == [0, 2, 4, 6, 8, 10, 12, 14]
        assert sorted(call.ordinal for call in it.calls) == list(range(8))


@needs()
async def output_comes_in_order_and_before_its_cell_ends(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        seen: list[str] = []
        it.answers["look"] = lambda: seen.append(it.text)
        await it.value("print('one')\nlook()\nprint('two', end='')\nlook()")
        assert seen == ["one\n", "one\ntwo"]
        assert it.text == "one\ntwo"
        code = "import sys\nfor n in range(5):\n    print('o', n)\n    print('e', n, file=sys.stderr)"
        await it.value(code)
        assert it.text == "".join(f"o {n}\ne {n}\n" for n in range(5))
        await it.value("print('\\x1b[31m\\x07 é€😀' * 1000)")
        assert it.text == "\x1b[31m\x07 é€😀" * 1000 + "\n"
        await it.error("print('before')\nraise ValueError")
        assert it.text == "before\n"


@needs()
async def output_is_bounded_and_counted(provider: SandboxProvider) -> None:
    async with box(provider, output_bytes=1000) as it:
        result = await it.run("print('é' * 5000, end='')")
        assert it.text == "é" * 500
        assert result.usage.printed_bytes == 10_000
        assert result.usage.dropped_bytes == 9000
        result = await it.run("print('again')")
        assert it.text == "again\n"
        assert result.usage.dropped_bytes == 0


@needs()
async def long_numbers_print(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        shown = await it.value("len(f'{10 ** 4000}')")
        assert shown == 4001


@needs(PROCESS)
async def output_of_subprocesses_keeps_its_place(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.value("import os, subprocess")
        await it.value("print('1', end=' ')\nos.system('echo 2')\nos.write(1, b'3 ')\nprint('4')")
        assert it.text == "1 2\n3 4\n"
        await it.value("subprocess.run(['sh', '-c', 'echo out; echo err >&2'])")
        assert (it.text_of("stdout"), it.text_of("stderr")) == ("out\n", "err\n")
        await it.value("os.write(1, b'\\xe2\\x82'); os.write(1, b'\\xac'); os.write(1, b'\\xff')")
        assert it.text == "€\ufffd"
        await it.value("print(1); open('/dev/stdout', 'w').write('2\\n'); print(3)")
        assert it.text == "1\n2\n3\n"


@needs(PROCESS)
async def background_processes_do_not_hold_up_a_cell(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.value("import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\nprint('started')")
        assert it.text == "started\n"
        code = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
        await it.value(code)
        assert await it.value("child.poll()") is None
        await it.value("import os\nif os.fork() == 0:\n    print('child')\n    1 / 0\nos.wait()[1] != 0")
        assert it.text_of("stdout") == "child\n"
        assert await it.value("1 + 1") == 2


@needs(PROCESS)
async def the_standard_streams_come_back(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        await it.value("import io, os, sys\nsys.stdout = io.StringIO()\nprint('unseen')")
        await it.value("print('seen')")
        assert it.text == "seen\n"
        await it.value("sys.stdout.close()")
        await it.value("os.close(1); os.close(2)")
        await it.value("print('seen'); os.system('echo too')")
        assert it.text == "seen\ntoo\n"
        assert await it.value("sys.stdin.read(), os.read(0, 10).decode()") == ["", ""]


@needs()
async def unawaited_errors_are_shown_and_the_next_cell_runs(provider: SandboxProvider) -> None:
    async with box(provider) as it:
        code = "import asyncio\nasync def boom():\n    raise ValueError('boom')\n"
        await it.value(code + "kept = asyncio.create_task(boom())\nawait asyncio.sleep(0)")
        assert await it.value("await asyncio.sleep(0, 'awaited')") == "awaited"
        assert await it.value("1 + 1") == 2


@needs(PROCESS)
async def unawaited_errors_reach_standard_error(provider: SandboxProvider) -> None:
    code = "import asyncio\nasync def boom():\n    raise ValueError('boom')\n"
    async with box(provider) as it:
        await it.value(code + "kept = asyncio.create_task(boom())\nawait asyncio.sleep(0)")
        assert "ValueError: boom" in it.text_of("stderr")
        main = "async def main():\n    asyncio.create_task(boom())\n    await asyncio.sleep(0)\n"
        await it.value(main + "asyncio.run(main())")
        assert "ValueError: boom" in it.text_of("stderr")
        await it.value("import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()")
        assert "ZeroDivisionError" in it.text_of("stderr")
        assert await it.value("1 + 1") == 2


@needs()
async def sandboxes_share_nothing(provider: SandboxProvider) -> None:
    async def one(number: int) -> None:
        async with box(provider, f"box-{number}") as it:
            await it.value(f"mine = only_{number} = {number}\n{writing('mine.txt', str(number))}")
            for _ in range(5):
                assert await it.value("echo(mine)") == [[number], {}]
                assert await it.value(reading("mine.txt")) == str(number)
                assert await it.value("[n for n in globals() if n.startswith('only_')]") == [f"only_{number}"]

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(one(number))


@needs()
async def errors_of_the_host_end_the_run(provider: SandboxProvider) -> None:
    class HostBroken(Exception):
        pass

    def broken(*args: object) -> Json:
        raise HostBroken

    async with box(provider) as it:
        it.answers["broken"] = broken
        try:
            await it.run("broken()")
        except HostBroken:
            pass
        else:
            raise AssertionError("the host's own error did not come through")
    async with box(provider) as it:
        try:
            await it.sandbox.run("print(1)", on_printed=_broken_printed, on_call=it.answer)
        except KeyError:
            pass
        else:
            raise AssertionError("the error of on_printed did not come through")


def _broken_printed(printed: Printed) -> None:
    raise KeyError(printed.text)
