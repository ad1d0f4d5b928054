"""A small Hub on the loopback interface, with the routes that huggingface_hub needs to upload and to open a model.

It keeps repositories in memory, answers with the headers and status codes of the real Hub, and can be told to fail.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_ThisTokenIsAStandInAndMustAppearNowhere"
USER = "user"


class Hub(ThreadingHTTPServer):
    """The server. A test may read and write these attributes:

    - ``repos``: a dictionary, name -> {"private": bool, "commits": [{path: content}]}.
    - ``requests``: a list of (method, path).
    - ``faults``: a list of [method, pattern of the path, what to do, how often]. What to do is a status code, or "cut"
      to close the connection without an answer.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos: dict[str, dict] = {}
        self.stored: dict[str, bytes] = {}  # the contents of large files, by their SHA-256
        self.requests: list[tuple[str, str]] = []
        self.faults: list[list] = []
        self.token = TOKEN

    def files(self, name: str) -> dict[str, bytes]:
        return self.repos[name]["commits"][-1]

    def handle_error(self, request, client_address):
        """Do nothing: a connection that the client closes is not an error."""


@contextmanager
def running() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


def is_large(path: str) -> bool:
    return path.endswith((".safetensors", ".png"))


def oid(path: str, content: bytes) -> str:
    if is_large(path):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def commit_id(repo: dict) -> str:
    return f"{len(repo['commits']):040x}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *args) -> None:
        """Do nothing: the tests read what the client prints, and requests must not be printed in between."""

    def answer(self, status: int, content: dict | list | bytes = b"", **headers: str) -> None:
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers.setdefault("Content-Type", "application/json")
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path))
        for fault in self.server.faults:
            if fault[3] and fault[0] == self.command and re.fullmatch(fault[1], path):
                fault[3] -= 1
                if fault[2] == "cut":
                    self.close_connection = True
                    self.connection.close()
                    return
                self.answer(fault[2], {"error": "a fault of the stand-in"})
                return
        for method, pattern, handle in ROUTES:
            if method == self.command and (match := re.fullmatch(pattern, path)):
                if not path.startswith("/stored/") and not self.known():
                    self.answer(401, {"error": "Invalid credentials"})
                    return
                handle(self, body, *match.groups())
                return
        self.answer(404, {"error": "no such route"})

    do_GET = do_HEAD = do_POST = do_PUT = do

    def known(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.server.token}"

    def repo(self, name: str) -> dict | None:
        if name not in self.server.repos:
            self.answer(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return self.server.repos.get(name)

    def whoami(self, body: bytes) -> None:
        self.answer(200, {"type": "user", "name": USER, "orgs": [], "auth": {}})

    def create(self, body: bytes) -> None:
        wanted = json.loads(body)
        name = f"{wanted['organization'] or USER}/{wanted['name']}"
        found = {"url": f"{self.server.url}/{name}", "name": name}
        if name in self.server.repos:
            self.answer(409, found | {"error": "You already created this model repo"})
            return
        self.server.repos[name] = {"private": wanted.get("visibility") == "private", "commits": [{}]}
        self.answer(200, found)

    def validate(self, body: bytes) -> None:
        bad = not json.loads(body)["content"].startswith("---\n")
        self.answer(400 if bad else 200, {"errors": [{"message": "no metadata"}] * bad, "warnings": []})

    def preupload(self, body: bytes, name: str) -> None:
        if repo := self.repo(name):
            held = repo["commits"][-1]
            self.answer(
                200,
                {
                    "files": [
                        {
                            "path": (path := file["path"]),
                            "uploadMode": "lfs" if is_large(path) else "regular",
                            "shouldIgnore": False,
                            "oid": oid(path, held[path]) if path in held else None,
                        }
                        for file in json.loads(body)["files"]
                    ]
                },
            )

    def batch(self, body: bytes, name: str) -> None:
        objects = []
        for one in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.server.url}/stored/{one['oid']}"}}
            objects.append(one | ({} if one["oid"] in self.server.stored else {"actions": upload}))
        self.answer(200, {"transfer": "basic", "objects": objects})

    def store(self, body: bytes, sha256: str) -> None:
        assert hashlib.sha256(body).hexdigest() == sha256
        self.server.stored[sha256] = body
        self.answer(200)

    def commit(self, body: bytes, name: str) -> None:
        if not (repo := self.repo(name)):
            return
        files = dict(repo["commits"][-1])
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.stored[value["oid"]]
        repo["commits"].append(files)
        url = f"{self.server.url}/{name}/commit/{commit_id(repo)}"
        self.answer(200, {"success": True, "commitOid": commit_id(repo), "commitUrl": url})

    def info(self, body: bytes, name: str) -> None:
        if repo := self.repo(name):
            siblings = [{"rfilename": path} for path in repo["commits"][-1]]
            about = {"id": name, "sha": commit_id(repo), "private": repo["private"], "siblings": siblings}
            self.answer(200, about)

    def tree(self, body: bytes, name: str) -> None:
        if repo := self.repo(name):
            held = repo["commits"][-1].items()
            self.answer(200, [{"type": "file", "path": p, "size": len(c), "oid": oid(p, c)} for p, c in held])

    def resolve(self, body: bytes, name: str, path: str) -> None:
        if not (repo := self.repo(name)):
            return
        content = repo["commits"][-1].get(path)
        headers = {"X_Repo_Commit": commit_id(repo)}
        if content is None:
            self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", **headers)
        else:
            self.answer(200, content, ETag=f'"{oid(path, content)}"', **headers)


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = (
    ("GET", "/api/whoami-v2", Handler.whoami),
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("POST", rf"/api/models/{NAME}/preupload/main", Handler.preupload),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", r"/stored/(\w+)", Handler.store),
    ("POST", rf"/api/models/{NAME}/commit/main", Handler.commit),
    ("GET", rf"/api/models/{NAME}(?:/revision/\w+)?", Handler.info),
    ("GET", rf"/api/models/{NAME}/tree/\w+", Handler.tree),
    ("HEAD", rf"/{NAME}/resolve/\w+/(.+)", Handler.resolve),
    ("GET", rf"/{NAME}/resolve/\w+/(.+)", Handler.resolve),
)
