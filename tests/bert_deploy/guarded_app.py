"""Serve the page of each model folder and print the addresses, one a line; note every connection to another host.

    python tests/bert_deploy/guarded_app.py NOTES FOLDER...

NOTES is a file to which a line is added for whatever the process wants to connect to or look up outside 127.0.0.1.
"""

import sys
import time


def watch(notes: str) -> None:
    """Add a line to ``notes`` for every other host."""

    def hook(event: str, args: tuple) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
            address = args[1] if event in ("socket.connect", "socket.sendto") else args[0]
            host = address[0] if isinstance(address, tuple) else address
            if host not in ("127.0.0.1", "localhost", None):
                with open(notes, "a") as file:
                    file.write(f"{event} {address}\n")

    sys.addaudithook(hook)


if __name__ == "__main__":
    watch(sys.argv[1])
    import threading

    import uvicorn

    from bert_deploy.folder import open_folder
    from bert_deploy.serve import make_service

    for folder in sys.argv[2:]:
        config = uvicorn.Config(make_service(open_folder(folder)), port=0, lifespan="off", log_level="warning")
        listener = config.bind_socket()
        listener.listen()
        threading.Thread(target=uvicorn.Server(config).run, args=([listener],), daemon=True).start()
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
    while True:
        time.sleep(60)
