"""Farms on one machine for trials: workers in network namespaces of their own, and what they build."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

from miniature import make_tree

SOURCES = "zlib lz4 xxhash popt attr libmd acl libbsd minizip jq rsync libonig"
DELAY_SECONDS = 0.02
ORDINARY = 65534  # nobody
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def fail(why, code=1):
    print(f"error: {why}", file=sys.stderr)
    sys.exit(code)


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def as_ordinary():
    return ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]


def program_to_test():
    """KILNYARD, or this checkout's release build. Ends the trial if this machine lacks something."""
    if os.getuid() != 0:
        fail("it needs root, for namespaces of the network", 2)
    for need in ("ip", "setpriv", "taskset", "unshare"):
        if not shutil.which(need):
            fail(f"{need} is missing; install it: apt-get install iproute2 util-linux", 2)
    if program := os.environ.get("KILNYARD"):
        return program
    run("cargo", "build", "--release", "--locked", "-p", "kilnyard", cwd=ROOT)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release/kilnyard")


class Relay:
    """Copies the bytes of each connection to the door, after a delay and at a limited rate."""

    def __init__(self, address, port, rate):
        self.port, self.rate = port, rate
        self.busy, self.sent_bytes = threading.Lock(), 0
        self.listening = socket.create_server((address, 7878))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listening.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for source, to in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(source, to, source is far), daemon=True).start()

    def copy(self, source, to, is_to_worker):
        try:
            while data := source.recv(1 << 16):
                if self.rate:
                    # All connections share the rate.
                    with self.busy:
                        time.sleep(len(data) / self.rate)
                        self.sent_bytes += len(data) if is_to_worker else 0
                else:
                    time.sleep(DELAY_SECONDS)
                to.sendall(data)
        except OSError:
            pass
        for end in (source, to):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def join(space, link, end, network):
    """Joins a namespace to this one: `link` is the end here, with the address NETWORK.1, and `end` that there, with NETWORK.2."""
    run("ip", "link", "add", link, "type", "veth", "peer", "name", end, "netns", space)
    run("ip", "address", "add", f"{network}.1/24", "dev", link)
    run("ip", "link", "set", link, "up")
    run("ip", "-n", space, "address", "add", f"{network}.2/24", "dev", end)
    run("ip", "-n", space, "link", "set", end, "up")


class Worker:
    """A worker in a network namespace, as an ordinary user or root, on any processor or on one. A relay limits how fast inputs
    reach it, in bytes a second."""

    def __init__(self, farm, number, is_ordinary=False, processor=None, rate=None, cores=1):
        self.farm, self.number, self.name, self.cores = farm, number, f"far-{number}", cores
        self.program = farm.program
        self.is_ordinary, self.processor = is_ordinary, processor
        self.space = f"kilnyard-soak-{number}"
        self.folder = os.path.join(farm.folder, self.name)
        os.mkdir(self.folder)
        if self.is_ordinary:
            os.chown(self.folder, ORDINARY, ORDINARY)
        self.link = f"ks{number}"
        run("ip", "netns", "add", self.space)
        run("ip", "-n", self.space, "link", "set", "lo", "up")
        join(self.space, self.link, "wire", f"10.77.{number}")
        url = self.reach(rate)
        token = os.path.join(self.folder, "token")
        with open(token, "w") as file:
            file.write(farm.kilnyard("workers", "token").stdout)
        if self.is_ordinary:
            os.chown(token, ORDINARY, ORDINARY)
        self.start("--join", url, "--token-file", token, "--name", self.name)

    def reach(self, rate):
        """Prepares the way to the yard, and returns its address."""
        self.relay = Relay(f"10.77.{self.number}.1", self.farm.port, rate)
        return f"https://10.77.{self.number}.1:7878"

    def start(self, *arguments):
        command = ["ip", "netns", "exec", self.space]
        if self.is_ordinary:
            command += as_ordinary()
        if self.processor is not None:
            command += ["taskset", "--cpu-list", str(self.processor)]
        folder = os.path.join(self.folder, "worker")
        command += [self.program, "worker", "--cores", str(self.cores), "--folder", folder, *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": self.folder, "TMPDIR": "/tmp"}
        with open(os.path.join(self.folder, "log"), "a") as log:
            self.process = subprocess.Popen(command, env=environment, cwd="/", stdout=log, stderr=log)

    def send(self, what):
        # The programs before it execute it in their own process.
        self.process.send_signal(what)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()
        time.sleep(1)
        self.start()

    def stop(self, seconds):
        self.send(signal.SIGSTOP)
        time.sleep(seconds)
        self.send(signal.SIGCONT)

    def cut(self, seconds):
        run("ip", "link", "set", self.link, "down")
        time.sleep(seconds)
        run("ip", "link", "set", self.link, "up")

    def pause(self):
        """Ends the worker, which can be started again."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait()

    def clean(self):
        """Removes its layers and roots, which belong to the ids of roots."""
        user = as_ordinary() if self.is_ordinary else []
        folder = os.path.join(self.folder, "worker")
        subprocess.run([*user, self.program, "clean", "--base", "--yard", folder], check=False, capture_output=True)

    def end(self):
        self.pause()
        subprocess.run(["ip", "link", "delete", self.link], check=False)
        subprocess.run(["ip", "netns", "delete", self.space], check=False)


class Farm:
    """A yard with `kilnyard serve`; its workers are added to it."""

    def __init__(self, folder, program, kind):
        self.folder, self.program = folder, program
        self.yard = os.path.join(folder, "farm")
        kind.make_yard(program, self.yard)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start_door()
        self.workers = []

    def kilnyard(self, *arguments):
        return run(self.program, *arguments, "--yard", self.yard, stdout=subprocess.PIPE)

    def popen(self, *arguments):
        with open(os.path.join(self.folder, f"{arguments[0]}-log"), "a") as log:
            return subprocess.Popen([self.program, *arguments, "--yard", self.yard], stdout=log, stderr=log)

    def start_door(self):
        self.door = self.popen("serve", "--listen", f"127.0.0.1:{self.port}")
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        fail("kilnyard serve does not listen")

    def end(self):
        for worker in self.workers:
            worker.end()
        self.door.send_signal(signal.SIGINT)
        self.door.wait(60)


def described(rows):
    """The current outputs, of rows of package, name and output: package, version and digest of the content, by name."""
    found = {}
    for package, name, text in rows:
        output = json.loads(text)
        found[name] = (package, output["version"], output["content"])
    return found


def outputs(yard):
    """The current outputs of a yard whose store is a file."""
    store = sqlite3.connect(f"file:{yard}/state/kilnyard.db?mode=ro", uri=True)
    return described(store.execute("SELECT package, name, output FROM output"))


def published(yard):
    lines = []
    for folder, _, files in os.walk(os.path.join(yard, "repository")):
        if "Packages" in files:
            with open(os.path.join(folder, "Packages")) as file:
                lines += [line.strip() for line in file if line.startswith(("Package: ", "Version: "))]
        lines += [name for name in files if name.endswith(".tgz")]
    return sorted(lines)


def problems_of(expected, found, rows):
    """What differs from the expected outputs, and which packages were not built with outputs once. Rows have package, worker
    and outcome."""
    problems = []
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            problems.append(f"{name}: {found.get(name)} instead of {expected.get(name)}")
    for package in sorted({package for package, _, _ in expected.values()}):
        built = [row for row in rows if row[0] == package and row[2] in ("built", "unchanged")]
        if len(built) != 1:
            problems.append(f"{package} was built {len(built)} times")
    return problems


def show_by_worker(rows):
    by_worker = {}
    for _, worker, outcome in rows:
        by_worker.setdefault(worker, []).append(outcome)
    for worker, outcomes in sorted(by_worker.items()):
        print(f"  {worker}: " + ", ".join(f"{outcomes.count(o)} {o}" for o in sorted(set(outcomes))))


def left_over(folder):
    """The processes that name this folder."""
    return subprocess.run(["pgrep", "-af", folder], capture_output=True, text=True, check=False).stdout


class Debian:
    """Sources of Debian 12."""

    scans = False

    def __init__(self, folder):
        self.mirror = os.environ.get("MIRROR")
        self.packages = os.environ.get("SOURCES", SOURCES).split()

    def make_yard(self, program, yard):
        more = ["--mirror", self.mirror] if self.mirror else []
        command = (program, "init", "debian", "--release", "bookworm", *more, *self.packages, "--yard", yard)
        run(*command, stdout=subprocess.DEVNULL)


class Pkgsrc:
    """A tree, of which the workers scan a part."""

    scans = True

    def __init__(self, folder):
        self.mirror = os.environ.get("MIRROR")
        self.locations = os.environ.get("SOURCES", "").split()
        if tree := os.environ.get("TREE"):
            self.tree, self.more = tree, ["--bootstrap-kit", os.environ["KIT"]] if "KIT" in os.environ else []
        else:
            self.tree, kit = make_tree(folder)
            self.more = ["--make", "/usr/bin/bmake", "--bootstrap-kit", kit]

    def make_yard(self, program, yard):
        more = [*self.more, *(["--mirror", self.mirror] if self.mirror else []), *self.locations]
        run(program, "init", "pkgsrc", "--tree", self.tree, *more, "--yard", yard, stdout=subprocess.DEVNULL)
        config = os.path.join(yard, "kilnyard.toml")
        with open(config) as file:
            text = file.read()
        with open(config, "w") as file:
            file.write(text.replace('# packages = ["zlib1g-dev"]', 'packages = ["bmake", "make"]'))


SLEEPER = """# $NetBSD$
NAME= p{number:02}
VERSION= 1.0
do-build:
\t@sleep {seconds}
do-install:
\t@mkdir -p ${{DESTDIR}}${{PREFIX}}/share/p{number:02}
\t@echo {number} > ${{DESTDIR}}${{PREFIX}}/share/p{number:02}/number
.include "../../mk/pkg.mk"
"""


class Sleepers(Pkgsrc):
    """A tree of packages that wait, each for a time of its own, so that they do not begin and end together."""

    def __init__(self, folder, packages, seconds):
        self.mirror, self.locations = os.environ.get("MIRROR"), []
        self.tree, kit = make_tree(folder, packages, lambda n: SLEEPER.format(number=n, seconds=f"{seconds * (0.6 + n * 7 % 11 * 0.08):.2f}"))
        self.more = ["--make", "/usr/bin/bmake", "--bootstrap-kit", kit]

    def make_yard(self, program, yard):
        super().make_yard(program, yard)
        config = os.path.join(yard, "kilnyard.toml")
        with open(config) as file:
            text = file.read()
        with open(config, "w") as file:
            file.write(text.replace("# test = true", "test = false").replace("# jobs = 2", "jobs = 1"))
