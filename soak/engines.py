"""What the yard of several machines stands on, for trials: PostgreSQL with a replica, object storage, and the machines.

Everything is on one machine. PostgreSQL has a network namespace of its own, which each machine of the yard reaches over a
link of its own, so that one of them can be cut off. Workers reach the machines through relays.
"""

import glob
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
import uuid

from machines import ORDINARY, ROOT, Relay, Worker, as_ordinary, fail, join, run

# The networks 10.77.1 and following are those of workers.
OF_MACHINES, OF_DATABASE = "10.77.0", "10.77.2"
OBJECTS_ADDRESS = "10.77.0.9"
BASE = "kilnyard-base"
START_SECONDS_MAX = 180


def until(what, is_so, seconds_max=START_SECONDS_MAX, step=0.2):
    """Waits until something is so, and returns the seconds."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > seconds_max:
            fail(f"timed out: {what}")
        time.sleep(step)
    return time.monotonic() - begun


def processes():
    """The id, parent and arguments of all processes."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/stat") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"{path}/cmdline") as file:
                arguments = file.read().split("\0")[:-1]
        except (OSError, IndexError):
            continue
        found.append((int(os.path.basename(path)), parent, arguments))
    return found


def with_descendants(pids):
    everything, pids = processes(), set(pids)
    while more := {pid for pid, parent, _ in everything if parent in pids} - pids:
        pids |= more
    return pids


def send(pids, what):
    for pid in pids:
        try:
            os.kill(pid, what)
        except ProcessLookupError:
            pass


class Cluster:
    """A PostgreSQL server, by an ordinary user."""

    def __init__(self, folder, programs, name, port):
        self.folder, self.programs, self.name, self.port = os.path.join(folder, name), programs, name, port
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.folder)
        os.chown(self.folder, ORDINARY, ORDINARY)

    def perform(self, program, *arguments):
        # A server keeps the output of the program that starts it.
        with open(os.path.join(self.folder, "output"), "a") as output:
            command = ["ip", "netns", "exec", BASE, *as_ordinary(), os.path.join(self.programs, program), *arguments]
            ended = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        if ended.returncode != 0:
            fail(f"{program} failed: {self.folder}/output")

    def make(self):
        self.perform("initdb", "-D", self.data, "-A", "trust", "-U", "kiln", "--no-sync", "--locale=C.UTF-8")
        with open(os.path.join(self.data, "pg_hba.conf"), "a") as file:
            file.write("host all all 10.77.0.0/16 trust\n")
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            # Enough for a replica that is away for minutes.
            file.write("wal_keep_size = '512MB'\n")
        self.start()

    def replicate(self, primary):
        """Makes this server a replica of another one, and starts it."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = ["-h", primary.folder, "-p", str(primary.port), "-U", "kiln"]
        self.perform("pg_basebackup", *source, "-D", self.data, "-R", "-c", "fast", "-X", "stream")
        self.start()

    def start(self):
        options = f"-c listen_addresses='*' -c unix_socket_directories='{self.folder}' -c port={self.port}"
        log = os.path.join(self.folder, "log")
        self.perform("pg_ctl", "-D", self.data, "-l", log, "-w", "-t", str(START_SECONDS_MAX), "-o", options, "start")

    def kill(self):
        """Kills all of its processes at once, as a machine without power would."""
        note = os.path.join(self.data, "postmaster.pid")
        with open(note) as file:
            first = int(file.readline())
        # The first one does not see that others end.
        send([first, *(with_descendants({first}) - {first})], signal.SIGKILL)
        until("the database has ended", lambda: first not in [pid for pid, _, words in processes() if words])
        if os.path.exists(note):
            os.remove(note)
        for lock in glob.glob(f"{self.folder}/.s.PGSQL.*.lock"):
            os.remove(lock)

    def end(self):
        command = [*as_ordinary(), os.path.join(self.programs, "pg_ctl"), "-D", self.data, "-m", "immediate", "-w", "stop"]
        subprocess.run(command, cwd=self.folder, check=False, capture_output=True)

    def query(self, sql, database="postgres", seconds_max=10):
        """The rows of a statement, as lists of texts; none if the server is away or does not answer."""
        where = ["-h", self.folder, "-p", str(self.port), "-U", "kiln", "-d", database]
        command = [os.path.join(self.programs, "psql"), *where, "-X", "-A", "-t", "-F", "\x1f", "-c", sql]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds_max)
        except subprocess.TimeoutExpired:
            return None
        if ended.returncode != 0:
            return None
        return [line.split("\x1f") for line in ended.stdout.splitlines()]

    def set(self, name, value):
        """Changes a setting, even of a replica, and waits until it counts."""
        shown = None
        for _ in range(100):
            self.query(f"ALTER SYSTEM SET {name} = '{value}'")
            self.query("SELECT pg_reload_conf()")
            time.sleep(0.1)
            if (shown := self.query(f"SHOW {name}")) == [[value]]:
                return
        fail(f"{self.name} does not change {name}: {shown}")


class Database:
    """A primary and its replica, which change places."""

    def __init__(self, folder, is_synchronous=True):
        installed = glob.glob("/usr/lib/postgresql/*/bin/initdb")
        installed.sort(key=lambda path: int(path.split("/")[4]))
        if not installed or int(installed[-1].split("/")[4]) < 15:
            fail("PostgreSQL 15 or later is missing; install it: apt-get install postgresql", 2)
        programs = os.path.dirname(installed[-1])
        run("ip", "netns", "add", BASE)
        run("ip", "-n", BASE, "link", "set", "lo", "up")
        self.machines = 0
        self.is_synchronous = is_synchronous
        self.primary = Cluster(folder, programs, "database-1", 5432)
        self.replica = Cluster(folder, programs, "database-2", 5433)
        self.primary.make()
        self.primary.query("CREATE DATABASE farm")
        self.replica.replicate(self.primary)
        self.synchronize()

    def link(self, number):
        """Makes a link for a machine, and returns the URL over it."""
        network = f"{OF_DATABASE}{number}"
        join(BASE, f"kb{number}", f"wire{number}", network)
        return f"postgres://kiln@{network}.2:5432,{network}.2:5433/farm"

    def cut(self, number, is_cut=True):
        """Cuts a machine off: what it sends is lost, and not refused."""
        run("ip", "-n", BASE, "link", "set", f"wire{number}", "down" if is_cut else "up")

    def query(self, sql, **more):
        return self.primary.query(sql, "farm", **more)

    def is_replicated(self):
        """Whether the replica has all that is acknowledged."""
        states = "('sync', 'quorum')" if self.is_synchronous else "('async')"
        found = f"SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN {states}"
        return bool(self.query(found))

    def synchronize(self):
        if self.is_synchronous:
            self.primary.set("synchronous_standby_names", "*")
        until("the database is replicated", self.is_replicated)

    def crash(self):
        self.primary.kill()

    def promote(self):
        """The primary is lost, and the replica takes its place. There is no other replica until `heal`."""
        self.primary.kill()
        # It would wait for a replica of its own.
        self.replica.set("synchronous_standby_names", "")
        self.replica.perform("pg_ctl", "-D", self.replica.data, "-w", "promote")
        self.primary, self.replica = self.replica, self.primary

    def heal(self):
        self.replica.replicate(self.primary)
        self.synchronize()

    def end(self):
        for cluster in (self.primary, self.replica):
            cluster.end()
        subprocess.run(["ip", "netns", "delete", BASE], check=False)


class Objects:
    """A server of object storage: S3Proxy, which is KILNYARD_S3PROXY or target/s3proxy.jar, or versitygw of the PATH."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "objects")
        self.data = os.path.join(self.folder, "data")
        named = [os.environ.get("KILNYARD_S3PROXY"), os.path.join(ROOT, "target/s3proxy.jar")]
        jar = next((path for path in named if path and os.path.isfile(path)), None)
        found = jar if jar and shutil.which("java") else shutil.which("versitygw")
        if not found:
            what = "java and S3Proxy (org.gaul:s3proxy, its jar with dependencies, as KILNYARD_S3PROXY), or versitygw on the PATH"
            fail(f"a server of object storage is missing: {what}", 2)
        self.key, self.secret = (uuid.uuid4().hex for _ in range(2))
        os.makedirs(os.path.join(self.data, "farm"))
        # The ordinary user may not reach the folder where it is installed.
        self.program = shutil.copy(found, self.folder)
        for path in (self.folder, self.data, os.path.join(self.data, "farm")):
            os.chown(path, ORDINARY, ORDINARY)
        with socket.create_server((OBJECTS_ADDRESS, 0)) as free:
            self.address = f"{OBJECTS_ADDRESS}:{free.getsockname()[1]}"
        self.endpoint = f"http://{self.address}"
        self.credentials = os.path.join(folder, "credentials.toml")
        with open(self.credentials, "w") as file:
            file.write(f'key-id = "{self.key}"\nsecret = "{self.secret}"\n')
        os.chmod(self.credentials, 0o600)
        self.start()

    def start(self):
        if self.program.endswith(".jar"):
            properties = os.path.join(self.folder, "properties")
            with open(properties, "w") as file:
                file.write(
                    f"s3proxy.authorization=aws-v2-or-v4\ns3proxy.endpoint={self.endpoint}\n"
                    f"s3proxy.identity={self.key}\ns3proxy.credential={self.secret}\n"
                    f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={self.data}\n"
                )
            lean = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
            command = ["java", *lean, "-jar", self.program, "--properties", properties]
        else:
            keys = ["--access", self.key, "--secret", self.secret]
            command = [self.program, "--port", self.address, *keys, "--quiet", "--keep-alive", "posix", self.data]
        with open(os.path.join(self.folder, "log"), "a") as log:
            self.process = subprocess.Popen([*as_ordinary(), *command], cwd=self.data, stdout=log, stderr=log)
        until("the server of object storage answers", self.answers)

    def answers(self):
        try:
            urllib.request.urlopen(self.endpoint, timeout=5)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def send(self, what):
        self.process.send_signal(what)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def tables(self, store):
        """The configuration of a yard with this database."""
        return (
            f'\n[artifacts]\nurl = "s3://farm/main"\nendpoint = "{self.endpoint}"\nregion = "us-east-1"\n'
            f'credentials-file = "{self.credentials}"\ndirect = true\n\n[store]\nurl = "{store}"\n'
        )

    def options(self, store):
        """The options of `serve --standby` with this database."""
        more = ["--artifacts", "s3://farm/main", "--endpoint", self.endpoint, "--region", "us-east-1"]
        return ["--standby", "--store", store, *more, "--credentials-file", self.credentials]


class Machine:
    """A machine that can have the yard, with a name of its own."""

    def __init__(self, farm, number):
        self.farm, self.number, self.name = farm, number, f"kiln-{number}"
        self.program = farm.program
        self.yard = os.path.join(farm.folder, self.name)
        self.log = os.path.join(farm.folder, f"log-{number}")
        self.store = farm.database.link(number)
        address = f"{OF_MACHINES}.{number}"
        run("ip", "address", "add", f"{address}/32", "dev", "lo")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.relay = Relay(address, self.port, None)
        self.url = f"https://{address}:7878"
        self.children = []

    def command(self, *arguments):
        # Without --fork, it is the same process in the end.
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]
        return [*named, self.program, *arguments, "--yard", self.yard]

    def kilnyard(self, *arguments, **more):
        return run(*self.command(*arguments), stdout=subprocess.PIPE, **more)

    def start(self, *arguments):
        with open(self.log, "a") as log:
            log.write(f"{time.strftime('%T')} starts {arguments[0]}\n")
            log.flush()
            child = subprocess.Popen(self.command(*arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.children.append(child)
        return child

    def serve(self, *more):
        return self.start("serve", "--listen", f"127.0.0.1:{self.port}", "--address", self.url, *more)

    def build(self):
        return self.start("build", "--elsewhere", *self.farm.build_options)

    def running(self, command=None):
        """The processes of its commands; of one command, if it is given."""
        for child in self.children:
            child.poll()
        found = []
        for pid, _, words in processes():
            is_of_yard = "--yard" in words[:-1] and words[words.index("--yard") + 1] == self.yard
            if is_of_yard and words[0] != "unshare" and (command is None or command in words):
                found.append(pid)
        return found

    def kill(self, command=None):
        send(with_descendants(self.running(command)), signal.SIGKILL)
        until(f"{self.name} is gone", lambda: not self.running(command), step=0.05)

    def send(self, what, command=None):
        send(self.running(command), what)

    def said(self):
        with open(self.log) as file:
            return file.read()

    def end(self):
        self.send(signal.SIGCONT)
        self.send(signal.SIGINT)
        begun = time.monotonic()
        while self.running() and time.monotonic() - begun < 60:
            time.sleep(0.2)
        self.kill()
        run("ip", "address", "delete", f"{OF_MACHINES}.{self.number}/32", "dev", "lo")
        subprocess.run(["ip", "link", "delete", f"kb{self.number}"], check=False, stderr=subprocess.DEVNULL)


class FarWorker(Worker):
    """A worker that reaches all machines of the yard."""

    def reach(self, rate):
        run("ip", "-n", self.space, "route", "add", "default", "via", f"10.77.{self.number}.1")
        return self.farm.machines[0].url


class TwoMachines:
    """A farm whose yard is on two machines, with a database and object storage."""

    def __init__(self, folder, program, kind, workers, is_synchronous=True, build_options=()):
        self.folder, self.program, self.build_options = folder, program, build_options
        run("ip", "address", "add", f"{OBJECTS_ADDRESS}/32", "dev", "lo")
        self.workers, self.machines, self.objects = [], [], None
        self.database = Database(folder, is_synchronous)
        try:
            self.objects = Objects(folder)
            self.machines += [Machine(self, number) for number in (1, 2)]
            first, second = self.machines
            kind.make_yard(program, first.yard)
            config = os.path.join(first.yard, "kilnyard.toml")
            with open(config) as file:
                text = file.read()
            before = text.split("\n[artifacts]")[0]
            after = text.split("\n[store]")[1].split("\n\n", 1)[1]
            with open(config, "w") as file:
                file.write(f"{before}\n{self.objects.tables(first.store)}\n{after}")
            self.prepare(first)
            first.serve()
            until("the yard is sent", lambda: "others can take over" in first.said(), 1200)
            second.serve(*self.objects.options(second.store))
            until("the standby has the yard", lambda: "the yard is here" in second.said(), 1200)
            workers(self)
        except BaseException:
            self.end()
            raise

    def prepare(self, first):
        """Before a standby is there, for those who need a yard with more in it."""

    def kilnyard(self, *arguments):
        return self.machines[0].kilnyard(*arguments)

    def leader(self):
        """The machine that leads, and for how many seconds it has been silent; none if the database does not say."""
        rows = self.database.query(
            "SELECT holder_name, has_left, extract(epoch FROM clock_timestamp() - renewed), epoch"
            " FROM kilnyard.store WHERE renewed IS NOT NULL"
        )
        for name, has_left, silent, epoch in rows or []:
            for machine in self.machines:
                if name.endswith(f":{machine.yard}"):
                    return machine, has_left == "t", float(silent), int(epoch)
        return None

    def run_state(self):
        rows = self.database.query("SELECT state FROM kilnyard.run ORDER BY number DESC LIMIT 1")
        return rows[0][0] if rows else None

    def is_building(self):
        return any(machine.running("build") for machine in self.machines)

    def end(self):
        for worker in self.workers:
            worker.end()
        for machine in self.machines:
            machine.end()
        if self.objects:
            self.objects.kill()
        self.database.end()
        subprocess.run(["ip", "address", "delete", f"{OBJECTS_ADDRESS}/32", "dev", "lo"], check=False)
