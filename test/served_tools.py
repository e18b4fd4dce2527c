"""The tools of lit's RUN lines without their start, which imports MLIR's bindings and takes longer than what they do.

    python served_tools.py SOCKET                        # imports the tools, then serves until its standard input ends
    python -I -S served_tools.py SOCKET attn-opt ARG…    # what a RUN line calls

The server forks for each call; its child takes over the caller's streams, folder, environment and arguments.
"""

import os
import signal
import socket
import sys

TOOLS = {"attn-opt": "attn_opt.compiler.tools.attn_opt", "FileCheck": "filecheck.main"}
DIED = 255


def call(path: str, command: list[str]) -> int:
    environment = [f"{name}={value}" for name, value in os.environ.items()]
    words = [str(len(command)), os.getcwd(), *command, *environment]
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [b"\0"], [0, 1, 2])
        server.sendall(b"\0".join(map(os.fsencode, words)))
        server.shutdown(socket.SHUT_WR)
        return (server.recv(1) or bytes([DIED]))[0]


def serve(path: str) -> None:
    import gc
    import importlib
    import selectors

    from attn_opt.dialects import linalg_ext, pair, tile, transform_ext  # noqa: F401  not a context: it has threads

    tools = {name: importlib.import_module(module) for name, module in TOOLS.items()}
    gc.freeze()  # children write to none of it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for children
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        ready.register(listener, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in ready.select()):
            client, _ = listener.accept()
            with client:
                if os.fork() == 0:
                    listener.close()
                    answer(client, tools)
    os.remove(path)
    os.rmdir(os.path.dirname(path))


def answer(client: socket.socket, tools: dict) -> None:
    """Works as the tool that the client called, and ends."""
    status = DIED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, streams, _, _ = socket.recv_fds(client, 1, 3)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        with client.makefile("rb") as sent:
            count, folder, *words = [os.fsdecode(word) for word in sent.read().split(b"\0")]
        sys.argv = words[: int(count)]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(word.split("=", 1) for word in words[int(count) :])
        status = tools[sys.argv[0]].main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        client.sendall(bytes([status or 0]))
        os._exit(0)


if __name__ == "__main__":
    path, *command = sys.argv[1:]
    sys.exit(call(path, command) if command else serve(path))
