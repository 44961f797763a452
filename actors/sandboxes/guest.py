"""The driver inside every sandbox: keeps one namespace alive and runs cells in it. Standard library only, one file.

    python -I -S -B -X utf8 guest.py READ_FD WRITE_FD [--become UID]

The two file descriptors carry frames (see ``frames.py``); standard input, output and error belong to the code that is
run. The main thread runs cells, so that signals reach them; a second one reads the channel. It is no security
border: code can reach everything here, and spoil only its own sandbox.
"""

from __future__ import annotations

import _ast
import _thread
import builtins
import contextlib
import errno
import fcntl
import io
import itertools
import json
import mmap
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False  # typing itself would be a third of the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

VALUE_LIMIT_BYTES = 1 << 20
"""A last expression's value over this is shown, not sent."""
SHOWN_LIMIT = 20_000
MESSAGE_LIMIT = 4_000
FRAMES_LIMIT = 1_000  # a recursion without a limit has millions, and each costs a lookup
JSON_DIGITS = 4300
OUT_OF_MEMORY, HOST_LEFT = 86, 87
"""Exit statuses of the driver; 86 is reported as gone (memory)."""

DRIVER_FILE = (lambda: None).__code__.co_filename
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "list": (list, tuple),
    "dict": (dict,),
}


class Submitted(BaseException):
    """Ends the cell that called SUBMIT; no ``except Exception`` in it stops that."""


def plain(value: Any) -> Any:
    """NumPy's own scalars and arrays as what JSON has; everything else is refused."""
    if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)


def encode(value: Any) -> bytes:
    """JSON that every reader accepts. Errors: TypeError; ValueError (NaN, circular, no text, over 4,300 digits)."""
    limit_digits(JSON_DIGITS)
    try:
        return _encoder.encode(value).encode()
    finally:
        limit_digits(Driver.digits)


def limit_digits(count: int) -> None:
    """How many digits an int may have when it becomes text; 0 is any number."""
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(count)


TREE_TRIES = 9
TREES = _thread.allocate_lock()
"""CPython 3.11 counts the depth of trees in one place for all threads; several interpreters may share a process."""


def compiled(code: str, filename: str) -> list[Any]:
    """The code compiled: its statements, and its last expression apart if it ends in one."""
    for _ in range(TREE_TRIES):
        with contextlib.suppress(SystemError):  # another thread, out of our reach, built a tree at the same time
            return _compiled(code, filename)
    return _compiled(code, filename)


def _compiled(code: str, filename: str) -> list[Any]:
    with TREES:
        tree: Any = compile(code, filename, "exec", 0x400, True)  # PyCF_ONLY_AST
        last = tree.body.pop().value if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
        parts = [compile(tree, filename, "exec", 0x2000, True)]  # PyCF_ALLOW_TOP_LEVEL_AWAIT
        if last is not None:
            parts.append(compile(_ast.Expression(last), filename, "eval", 0x2000, True))
    return parts


class Interpreter:
    """One namespace, the cells that ran in it, and how each of them ended."""

    def __init__(
        self,
        namespace: dict[str, Any],
        call: Callable[[str, bytes, bytes], Any],
        started: Callable[[], None],
        result_bytes: int,
    ) -> None:
        self.namespace = namespace
        self._started = started
        self.running = False
        self.interrupted = False
        self._call = call
        self._result_bytes = result_bytes
        self._functions: dict[str, Callable[..., Any]] = {}
        self._outputs: list[tuple[str, str]] = []
        self._submitted: bytes | None = None
        self._value = b"null"
        self._cells = 0
        self._loop: Any = None

    def run(self, cell: dict[str, Any], make_room: Callable[[], None]) -> bytes:
        """Run one cell; `make_room` is called when it ran out of memory.

        Returns the fields of ``done`` but for id and cpu_seconds, as JSON without the braces.
        """
        self._submitted, self._value, self.interrupted = None, b"null", False
        self._outputs = [(name, kind) for name, kind in cell["outputs"]]
        self._cells += 1
        self.namespace.setdefault("__name__", "__main__")
        for name in cell["functions"]:
            self._functions[name] = self._host_function(name)
            self.namespace[name] = self._functions[name]
        for name, function in self._functions.items():
            self.namespace.setdefault(name, function)
        self.namespace["SUBMIT"] = self._submit
        self.namespace.update(cell["variables"])
        filename = f"<cell {self._cells}>"
        raised: BaseException | None
        try:
            raised = self._execute(cell["code"], filename)
        except KeyboardInterrupt as error:  # between the end of the code and our noticing it
            self.running = False
            raised = error
        if raised is None or (isinstance(raised, Submitted) and self._submitted is not None):
            return b'"status":"ok","submitted":%s,"value":%s' % (self._submitted or b"null", self._value)
        status = b"interrupted" if self.interrupted and isinstance(raised, KeyboardInterrupt) else b"error"
        if isinstance(raised, MemoryError):
            make_room()
        described = describe(raised)
        return b'"status":"%s","error":%s,"submitted":%s' % (status, described, self._submitted or b"null")

    def _execute(self, code: str, filename: str) -> BaseException | None:
        try:
            self.running = True
            self._started()
            remember_source(filename, code)
            parts = compiled(code, filename)
            if any(part.co_flags & 0x80 for part in parts):  # CO_COROUTINE
                value = self._await(self._evaluate(parts))
            else:
                value = [eval(part, self.namespace) for part in parts][-1]
            self._value = b"null" if value is None else shown(value)
            self.running = False
            return None
        except BaseException as error:
            self.running = False
            return error

    async def _evaluate(self, parts: list[Any]) -> Any:
        value = None
        for part in parts:
            value = eval(part, self.namespace)
            if part.co_flags & 0x80:
                value = await value
        return value

    def _await(self, coroutine: Any) -> Any:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        main = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(main)
        finally:
            if not main.done():  # interrupted: leave nothing of it for the next cell
                main.cancel()
            for _ in range(3):
                self._loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        """Let go of the event loop; only needed where the process goes on."""
        if self._loop is not None:
            self._loop.close()

    def _host_function(self, name: str) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            packed, named = self._pack(f"an argument of {name}", args), self._pack(f"an argument of {name}", kwargs)
            if len(packed) + len(named) > self._result_bytes:
                raise ValueError(f"{name}: the arguments are over the limit of {self._result_bytes:,} bytes")
            return self._call(name, packed, named)

        function.__name__ = function.__qualname__ = name
        function.__module__ = "__main__"
        return function

    def _submit(self, *args: Any, **kwargs: Any) -> None:
        """Hand in the answer and end the cell."""
        expected = "SUBMIT({})".format(", ".join(f"{n}: {kind}" if kind else n for n, kind in self._outputs))
        names = [name for name, _ in self._outputs]
        if len(args) > len(names):
            raise TypeError(f"expected {expected}, got {len(args)} positional arguments")
        given = dict(zip(names, args))  # noqa: B905 (not in Python 3.9)
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise TypeError(f"expected {expected}, got {name} {'twice' if name in given else 'too'}")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise TypeError(f"expected {expected}, missing {', '.join(missing)}")
        for name, kind in self._outputs:
            value = given[name]
            if type(value).__module__ == "numpy":
                value = given[name] = plain(value)
            if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "bool")):
                raise TypeError(f"expected {expected}, but {name} is {type(value).__name__}")
        packed = self._pack("an argument of SUBMIT", {name: given[name] for name in names})
        if len(packed) > self._result_bytes:
            raise ValueError(
                f"SUBMIT: {len(packed):,} bytes, the limit is {self._result_bytes:,}; write a file instead"
            )
        self._submitted = packed
        raise Submitted

    def _pack(self, what: str, value: Any) -> bytes:
        try:
            return encode(value)
        except RecursionError:
            raise ValueError(f"{what} is nested too deeply for JSON") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what} cannot be sent as JSON: {error}") from None


def shown(value: Any) -> bytes:
    """The value of a last expression: itself when that is JSON of bearable size, else its bounded repr."""
    try:
        packed = encode(value)
        if len(packed) <= VALUE_LIMIT_BYTES:
            return packed
    except (TypeError, ValueError, RecursionError, MemoryError):
        pass
    text = repr(value)
    if len(text) > SHOWN_LIMIT:
        text = f"{text[:SHOWN_LIMIT]}… ({len(text):,} characters)"
    return encode(text.encode("utf-8", "backslashreplace").decode())


def describe(raised: BaseException) -> bytes:
    """A CodeError as JSON: the frames of the code, not of this file; the end of a long traceback."""
    try:
        import traceback

        exception = traceback.TracebackException(type(raised), raised, raised.__traceback__, limit=-FRAMES_LIMIT)
        for part in parts_of(exception, set()):
            first = next((n for n, f in enumerate(part.stack) if f.filename.startswith("<cell ")), 0)
            own = [f for f in part.stack[first:] if f.filename != DRIVER_FILE]
            part.stack = traceback.StackSummary.from_list(own)
        with TREES:  # Python marks the place in each line, for which it parses the line
            text = "".join(exception.format())
    except BaseException as error:  # a hostile __str__, no memory left: the code's exception is still the answer
        text = f"{type(raised).__name__} (its traceback cannot be shown: {type(error).__name__})"
    try:
        message = str(raised)
    except BaseException:
        message = "(its message cannot be shown)"
    fields = {
        "type_name": type(raised).__name__,
        "message": message[:MESSAGE_LIMIT],
        "traceback": text[-SHOWN_LIMIT:],
    }
    return encode({key: item.encode("utf-8", "backslashreplace").decode() for key, item in fields.items()})


def parts_of(exception: Any, seen: set[int]) -> Iterator[Any]:
    """A traceback with its causes, contexts and group members."""
    waiting = [exception]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or [])]


def remember_source(filename: str, code: str) -> None:
    """Let tracebacks show the lines of a cell."""
    import linecache

    linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)


def host_error(type_name: str, message: str) -> Exception:
    """An exception that reads ``type_name: message`` and is caught as the built-in of that name, if there is one."""
    kind: Any = getattr(builtins, type_name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = RuntimeError
    body = {"__module__": "builtins", "__str__": lambda self: message}
    try:
        error: Exception = type(type_name, (kind,), body)(message)
    except (TypeError, ValueError):  # such as UnicodeDecodeError, which wants five arguments
        error = type("HostCallFailed", (RuntimeError,), body)(message)
    return error


class Stream(io.TextIOWrapper):
    """sys.stdout or sys.stderr: straight to its file descriptor, so that a subprocess's text keeps its place."""

    last: Stream | None = None

    def __init__(self, fd: int) -> None:
        raw = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", newline="\n")
        self._fd = fd

    def write(self, text: str) -> int:
        before = Stream.last
        if before is not self:
            if before is not None:
                before.wait_read()
            Stream.last = self
        count = super().write(text)
        self.flush()
        return count

    def wait_read(self) -> None:
        """Until the host has read this pipe (20 ms at most): what is printed to the other one then comes after it."""
        deadline = time.monotonic() + 0.02
        while time.monotonic() < deadline:
            try:
                unread = fcntl.ioctl(self._fd, 0x541B, bytes(4))  # FIONREAD
            except OSError:
                return
            if not any(unread):
                return
            time.sleep(0.0001)


_print = print


def print_whole(*values: Any, file: Any = None, **how: Any) -> None:
    """print, in one write: no other process's output gets between a line and its end."""
    target = sys.stdout if file is None else file
    if isinstance(target, Stream):
        text = io.StringIO()
        _print(*values, file=text, **{name: value for name, value in how.items() if name != "flush"})
        target.write(text.getvalue())
    else:
        _print(*values, file=target, **how)


class Channel:
    """Frames over two file descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        for fd in (read_fd, write_fd):
            os.set_inheritable(fd, False)

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._exactly(int.from_bytes(self._exactly(4), "big")))
        return message

    def send(self, body: bytes) -> None:
        """Not for two threads at once."""
        view = memoryview(len(body).to_bytes(4, "big") + body)
        while view:
            view = view[os.write(self.write_fd, view) :]

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = os.readv(self.read_fd, [view])
            if not count:
                raise EOFError
            view = view[count:]
        return data

    def close(self) -> None:
        for fd in {self.read_fd, self.write_fd}:
            os.close(fd)


class Driver:
    """Cells in the main thread, the channel in another, host calls from any."""

    digits = JSON_DIGITS
    """How long an int code may print; without limit once this process belongs to the code."""

    def __init__(self, channel: Channel, start: dict[str, Any]) -> None:
        main = type(sys)("__main__")
        self.old_main, sys.modules["__main__"] = sys.modules["__main__"], main
        self.interpreter = Interpreter(main.__dict__, self.call, self.started, start["result_bytes"])
        main.__dict__["__builtins__"] = builtins
        self.channel = channel
        self.forked = False
        self.cell: dict[str, Any] = {}
        self.inbox: list[dict[str, Any]] = []
        self.arrived = _thread.allocate_lock()
        self.arrived.acquire()
        self.sending = _thread.allocate_lock()
        self.shielded = False
        self.pending = False
        self.interrupt_id = self.delivered = -1
        self.numbers = itertools.count()
        self.waiting: dict[int, list[Any]] = {}
        self.saved = [(fd, os.dup(fd)) for fd in (0, 1, 2)]
        self.reserve: mmap.mmap | None = None

    def serve(self) -> None:
        """Run cells for ever; the process ends with the channel."""
        os.register_at_fork(after_in_child=self.after_fork)
        _thread.start_new_thread(self.listen, ())
        import linecache  # loaded now, while the host is busy with its own side
        import traceback  # noqa: F401

        del linecache
        try:
            while True:
                self.arrived.acquire()
                self.run(self.inbox.pop(0))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)

    def run(self, cell: dict[str, Any]) -> None:
        self.cell, self.pending = cell, False
        if self.reserve is None:
            self.reserve = mmap.mmap(-1, 4 << 20)  # what reports a MemoryError needs address space itself
        for fd, copy in self.saved:
            if not same_file(fd, copy):
                os.dup2(copy, fd)
        streams = Stream(1), Stream(2)
        sys.__dict__.update(stdout=streams[0], stderr=streams[1], __stdout__=streams[0], __stderr__=streams[1])
        signal.signal(signal.SIGINT, self.on_interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # a host such as Ray starts us with it blocked
        before = cpu_seconds()
        fields = self.interpreter.run(cell, self.make_room)
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(max(1000, sys.getrecursionlimit()))
        report_tasks()
        for stream in (*streams, sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # closed or replaced by the code, which had its chance to see the error
                continue
        if self.forked:
            os._exit(0)
        self.send(b'{"t":"done","id":%d,"cpu_seconds":%.6f,%s}' % (cell["id"], cpu_seconds() - before, fields))
        self.cell = {}

    def make_room(self) -> None:
        if self.reserve is not None:
            self.reserve.close()
            self.reserve = None

    def started(self) -> None:
        """The cell's code is about to run: an interrupt that came before must not be lost."""
        if self.interrupt_id == self.cell["id"]:
            self.interpreter.interrupted = True
            raise KeyboardInterrupt

    def on_interrupt(self, number: int, frame: Any) -> None:
        """SIGINT, in the main thread, between two of its steps."""
        self.delivered = self.cell.get("id", -1)
        if self.interpreter.running and self.shielded:
            self.pending = True
        elif self.interpreter.running:
            raise KeyboardInterrupt

    def listen(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            while True:
                message = self.channel.receive()
                kind = message["t"]
                if kind == "run":
                    self.inbox.append(message)
                    self.arrived.release()
                elif kind in ("reply", "fail"):
                    slot = self.waiting.get(message["id"])
                    if slot is not None:
                        slot[1] = message
                        slot[0].release()
                elif kind == "interrupt":
                    self.interrupt_id = message["id"]  # before looking: see `started`
                    if self.interpreter.running and self.cell.get("id") == message["id"]:
                        self.interpreter.interrupted = True
                        os.killpg(os.getpgrp(), signal.SIGINT)  # as a terminal does: its subprocesses too
                        with contextlib.suppress(RuntimeError):  # no thread left: the host will be the one to insist
                            _thread.start_new_thread(self.insist, (message["id"],))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException:  # the host is gone, or code closed the channel: nobody can use this process any more
            if os.getpgrp() == os.getpid():
                os.killpg(0, signal.SIGKILL)
            os._exit(HOST_LEFT)

    def insist(self, cell_id: int) -> None:
        """Repeat an interrupt that was ignored on arrival: the main thread was in C's system(), which does that."""
        for _ in range(20):
            time.sleep(0.05)
            if self.delivered == cell_id or self.cell.get("id") != cell_id:
                return
            signal.pthread_kill(MAIN_THREAD, signal.SIGINT)

    def call(self, name: str, args: bytes, kwargs: bytes) -> Any:
        """Ask the host and wait for its answer."""
        if self.forked:
            raise RuntimeError(f"{name} cannot be called from a forked process; use threads")
        slot: list[Any] = [_thread.allocate_lock(), None]
        slot[0].acquire()
        number = next(self.numbers)
        self.waiting[number] = slot
        try:
            self.send(b'{"t":"call","id":%d,"name":%s,"args":%s,"kwargs":%s}' % (number, encode(name), args, kwargs))
            slot[0].acquire()
        finally:
            self.waiting.pop(number, None)
        answer = slot[1]
        if answer["t"] == "fail":
            raise host_error(answer["type"], answer["message"])
        return answer["value"]

    def send(self, body: bytes) -> None:
        """Send a whole frame, whatever signal arrives meanwhile."""
        self.shielded = self.shielded or _thread.get_ident() == MAIN_THREAD
        try:
            with self.sending:
                self.channel.send(body)
        except OSError:
            os._exit(HOST_LEFT)
        finally:
            if _thread.get_ident() == MAIN_THREAD:
                self.shielded = False
                if self.pending:
                    self.pending = False
                    raise KeyboardInterrupt

    def after_fork(self) -> None:
        """A child of the code's own making: it may print, and must not speak for the driver."""
        self.forked = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            self.channel.close()


def same_file(fd: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(fd, other)
    except OSError as error:
        if error.errno == errno.EBADF:
            return False
        raise


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def report_tasks() -> None:
    """Print the errors of asyncio tasks nobody awaited, as asyncio would when it happens to collect them."""
    tasks = sys.modules.get("asyncio.tasks")
    try:
        known = getattr(tasks, "_all_tasks", None) or getattr(tasks, "_scheduled_tasks", None) or ()
        for task in list(known):
            if task.done() and not task.cancelled() and getattr(task, "_log_traceback", False):
                task._log_traceback = False
                error = json.loads(describe(task._exception))
                print(f"Task exception was never retrieved: {task.get_name()}\n{error['traceback']}", file=sys.stderr)
    except Exception as error:
        print(f"asyncio tasks could not be inspected: {error!r}", file=sys.stderr)


def confine(start: dict[str, Any]) -> None:
    """The limits the kernel keeps for each process, for good."""
    for name, limit in start["rlimits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if the machine runs out of memory, this process and not the host
    except OSError:
        pass


def become(uid: int) -> None:
    """Give up being root for good, and start over so that the kernel treats the process as that user's own."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-B", "-X", "utf8", *sys.argv[:3]])


def main() -> None:
    if len(sys.argv) > 3:
        become(int(sys.argv[4]))
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    os.closerange(3, channel.read_fd)  # whatever else was inherited is none of the code's business
    os.closerange(max(channel.read_fd, channel.write_fd) + 1, 256)
    start = channel.receive()
    with contextlib.suppress(OSError):  # already the leader
        os.setsid()
    Driver.digits = 0
    limit_digits(0)
    os.chdir(start["folder"])
    sys.path += [*start["paths"], os.getcwd()]
    sys.argv = [""]
    builtins.__dict__.update(exit=sys.exit, quit=sys.exit, print=print_whole)
    confine(start)
    driver = Driver(channel, start)
    channel.send(b'{"t":"ready","python":"%d.%d.%d"}' % sys.version_info[:3])
    driver.serve()


MAIN_THREAD = _thread.get_ident()
if __name__ == "__main__":
    main()
