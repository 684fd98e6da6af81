# After the driver: its session without signals and processes, and the function
# that the host calls once for each evaluation. The host saves an image of the memory after everything up to there has
# run.

import random
import time

COMMON = """
abc array ast asyncio base64 bisect calendar collections contextlib copy csv dataclasses datetime decimal
difflib enum fractions functools hashlib heapq html inspect io itertools json math numbers operator pathlib
pprint random re secrets shlex statistics string struct textwrap time traceback types typing unicodedata uuid zlib
"""


class NoSignals:
    """Replaces the module signal: there are no signals here."""

    SIGINT = 2

    @staticmethod
    def signal(number, handler):
        return None


signal = NoSignals


class WasmWorkspace(Workspace):
    """The files of reads, and then those of the host."""

    def stored(self, path):
        try:
            return super().stored(path)
        except FileNotFoundError:
            pass
        try:
            return whole("/.wisbox/host/" + path)
        except OSError as problem:
            raise type(problem)(problem.errno, os.strerror(problem.errno), path) from None

    def list(self, path):
        try:
            host = json.loads(whole("/.wisbox/list/" + path))
        except FileNotFoundError:
            return super().list(path)
        except OSError as problem:
            raise type(problem)(problem.errno, os.strerror(problem.errno), path) from None
        try:
            found = set(super().list(path))
        except FileNotFoundError:
            found = set()
        if host is None or len(found.update(host) or found) > LISTED_FILES:
            raise ValueError(f"more than {LISTED_FILES} files: name a directory further down")
        return sorted(found)


class WasmSession(Session):
    def __init__(self, channel, kind, root):
        super().__init__(channel, kind, root)
        self.workspace = WasmWorkspace(root)
        self.space = kind(self.workspace)

    def same_process(self):
        pass

    def collect(self, request, value, answer):
        if not request["eval"]:
            return super().collect(request, value, answer)
        names = self.space.names
        answer["fields"] = {"result": str(names["result"])} if "result" in names else {}

    def leave_behind(self, request, answer):
        if not request["eval"]:
            super().leave_behind(request, answer)


SESSIONS = {}  # of this memory, by whether they are restricted
ANSWER = "/.wisbox/answer"


def evaluate_once():
    """One evaluation: the request is a file, and so is the answer."""
    with open("/.wisbox/request", encoding="utf-8") as file:
        request = json.load(file)
    reads = {name: whole(path) for name, path in request["reads"].items()}
    if request["real"]:
        random.seed()
    if ProcessorTime.begin is None:
        ProcessorTime.begin = time.monotonic_ns()
    restricted = request["restricted"]
    if restricted not in SESSIONS:
        SESSIONS[restricted] = WasmSession(None, Restricted if restricted else Plain, "/workspace")
    answer = SESSIONS[restricted].evaluate(request, reads)
    flush()
    try:
        save(answer)
    except BaseException as problem:
        save(bare(request["id"], answer.get("traceback") or f"{type(problem).__name__}: the result is too large\n"))


def whole(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def save(answer):
    with open(ANSWER, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(answer, file)


def driver():
    try:
        evaluate_once()
    except BaseException:
        flush()


def boot():
    for name in COMMON.split():
        try:
            __import__(name)
        except ImportError:
            pass
    for name in STAND_INS:
        del sys.modules[name]
    ordinary_interpreter()
    complete_library()
    sys.argv = [""]
    sys.path.insert(0, "/workspace")
    os.environ.clear()
    os.chdir("/workspace")
    random.seed(0)
    gc.collect()
    gc.freeze()
    with open(ANSWER, "w") as file:
        json.dump({"object": id(driver), "version": list(sys.version_info[:2])}, file)
    os._exit(0)


boot()
