"""Managers of machines for trials of pools: a Slurm cluster of two nodes in private namespaces, and servers of ssh."""

import os
import re
import shutil
import socket
import subprocess
import time

from machines import ROOT, fail, run

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")


def wait_until(what, seconds, is_done):
    """The seconds that it took."""
    begun = time.monotonic()
    while not is_done():
        if time.monotonic() - begun > seconds:
            fail(f"not within {seconds} s: {what}")
        time.sleep(0.25)
    return time.monotonic() - begun


def program_of(folder, binary):
    """A program for machines that notes when it begins, in `begun`."""
    path = os.path.join(folder, "kilnyard")
    write_script(path, f'echo "$(date +%s.%N) $*" >> {folder}/begun\nexec {binary} "$@"')
    return path


def write_script(path, text):
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)


class Slurm:
    """The cluster of crates/pool/tests/slurm/farm.sh, with a link to this machine. Its programs are in `bin`; they note their
    calls in `calls`."""

    def __init__(self, folder):
        # Several trials do not disturb each other.
        part = os.getpid() % 250
        self.address, self.inner = f"10.78.{part}.1", f"10.78.{part}.2"
        self.folder = os.path.join(folder, "slurm")
        self.shared, self.bin = os.path.join(self.folder, "shared"), os.path.join(self.folder, "bin")
        os.makedirs(self.shared)
        os.mkdir(self.bin)
        script = os.path.join(ROOT, "crates/pool/tests/slurm/farm.sh")
        root = os.environ.get("KILNYARD_POOL_ROOT", os.path.join(ROOT, "target/debian-root"))
        run(script, "make", root)
        log = open(os.path.join(self.folder, "log"), "a")
        command = (script, "run", root, os.path.join(self.folder, "work"), self.shared)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        if (line := self.process.stdout.readline().strip()) != "ready":
            fail(f"the cluster is not ready: {line}; {self.folder}/log")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            self.first = file.read().strip()
        for program in PROGRAMS:
            # The clients of a real site are in PATH; these enter the namespaces first.
            enter = f'exec nsenter -t {self.first} -m -p -n /usr/bin/{program} "$@"'
            write_script(os.path.join(self.bin, program), f'echo "$(date +%s.%N) {program} $*" >> {self.folder}/calls\n{enter}')
        link = f"kp{part}"
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "wire", "netns", self.first)
        run("ip", "address", "add", f"{self.address}/24", "dev", link)
        run("ip", "link", "set", link, "up")
        for command in (("address", "add", f"{self.inner}/24", "dev", "wire"), ("link", "set", "wire", "up")):
            run("nsenter", "-t", self.first, "-n", "ip", *command)

    def ask(self, what):
        """kill, kill-slurmd or start, and a name."""
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().strip()
        if line != f"done {what}":
            fail(f"{what}: {line}")

    def call(self, program, *arguments):
        command = ["nsenter", "-t", self.first, "-m", "-p", "-n", f"/usr/bin/{program}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def jobs(self):
        """Names and states of the jobs that have not ended."""
        rows = self.call("squeue", "--noheader", "--format=%j %T").splitlines()
        return [tuple(row.split()) for row in rows]

    def node_of(self, name):
        return self.call("squeue", "--noheader", f"--name={name}", "--states=all", "--format=%N").strip()

    def submissions(self):
        """When sbatch was called for each name."""
        try:
            with open(os.path.join(self.folder, "calls")) as file:
                found = re.findall(r"^(\S+) sbatch .*--job-name=(\S+)", file.read(), re.MULTILINE)
        except FileNotFoundError:
            return {}
        return {name: float(at) for at, name in found}

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Sshd:
    """Two servers on this machine, with keys of their own, at the addresses lab1 and lab2 of a configuration for ssh. They log in an
    ordinary user, which only they know."""

    user, uid = "kilnyard-soak", 61_236

    def __init__(self, folder):
        self.folder = os.path.join(folder, "ssh")
        os.mkdir(self.folder)
        self.program = os.environ.get("KILNYARD_SSHD", "/usr/sbin/sshd")
        if not os.path.exists(self.program):
            fail(f"{self.program} is missing; install it: apt-get install openssh-server", 2)
        for key in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(key))
        shutil.copy(self.path("user.pub"), self.path("authorized"))
        with open("/etc/passwd") as file:
            accounts = file.read() + f"{self.user}:x:{self.uid}:{self.uid}::{self.folder}:/bin/sh\n"
        if "\nsshd:" not in accounts:
            accounts += "sshd:x:61235:61235::/run/sshd:/usr/sbin/nologin\n"
        self.write("passwd", accounts)
        with open(self.path("host.pub")) as file:
            host_key = file.read()
        known, hosts, self.ports, self.servers = "", "", {}, {}
        for name in ("lab1", "lab2"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = self.ports[name] = free.getsockname()[1]
            known += f"[127.0.0.1]:{port} {host_key}"
            hosts += f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User {self.user}\n"
            self.write(
                f"{name}.conf",
                f"Port {port}\nListenAddress 127.0.0.1\nHostKey {self.path('host')}\nAuthorizedKeysFile {self.path('authorized')}\n"
                "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            )
        self.write("known", known)
        self.write("config", f"{hosts}Host *\n  UserKnownHostsFile {self.path('known')}\n  IdentitiesOnly yes\n")
        os.mkdir(self.path("pilots"))
        os.chown(self.path("pilots"), self.uid, self.uid)
        for name in self.ports:
            self.start(name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def start(self, name):
        own = 'mount --bind "$1" /etc/passwd && mount -t tmpfs -o mode=755 none /run && mkdir /run/sshd && shift && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", own, "sh", self.path("passwd"), self.program, "-D", "-e", "-f", self.path(f"{name}.conf")]
        log = open(self.path(f"{name}.log"), "a")
        self.servers[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(f"the server {name} listens", 20, lambda: self.listens(self.ports[name]))

    @staticmethod
    def listens(port):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            return False

    def stop(self, name):
        server = self.servers.pop(name)
        server.kill()
        server.wait()

    def end(self):
        for name in list(self.servers):
            self.stop(name)
