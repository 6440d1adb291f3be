"""The batch scripts of examples/slurm/ under a Slurm of two nodes (cluster.sh): a job that its time limit, scancel, the death of a step or of a
node, or a requeue ends, continues without the loss of a step beyond the interval of its checkpoints."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train"))
from run import (RANKS, SOURCE, STARGRAD, Skip, children_of, content, folder, losses, main, pytest, stargrad,  # noqa: E402
                 wait_until)

if not pytest:
    main(())    # ends with the way to install it

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(SOURCE, "examples", "slurm")
NEEDS = ("ip", "munged", "nsenter", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "srun", "unshare")
# Steps of tens of milliseconds, that do not depend on the number of ranks. STEPS is never reached.
NET = ("--model", "lenet", "--data", "synthetic:32x32x1,10,4096", "--batch", 128, "--deterministic", "--cpus", 1, "--evaluate-last")
STEPS = 1000000
INTERVAL = 10       # steps between checkpoints
LIMIT = "DUE TO TIME LIMIT"


class Cluster:
    def __init__(self):
        if os.geteuid() or not all(map(shutil.which, NEEDS)):
            raise Skip("the Slurm tests need root, and Debian's packages iproute2, munge, slurm-client, slurmctld and slurmd")
        self.path, self.jobs = folder("cluster"), folder("jobs")
        os.makedirs(self.path)
        os.makedirs(self.jobs)
        with open(os.path.join(self.path, "out"), "w") as log:
            words = "unshare --fork --kill-child --mount --mount-proc --net --pid --uts bash".split()
            self.process = subprocess.Popen([*words, os.path.join(HERE, "cluster.sh"), self.path], stdout=log, stderr=log)
        self.env = {**os.environ, **RANKS, "SLURM_CONF": os.path.join(self.path, "slurm.conf"), "OMPI_MCA_mpi_yield_when_idle": "1",
                    "PATH": f"{os.path.dirname(os.path.abspath(STARGRAD))}:{os.environ['PATH']}"}

    def start(self):
        wait_until(lambda: os.path.exists(os.path.join(self.path, "up")), self.process, limit=120)
        assert self.process.poll() is None, content(self.path, "out").decode()
        if "pmix" not in self.call("srun", "--mpi=list"):
            raise Skip("the Slurm tests need Slurm's plug-in for PMIx")

    def close(self):
        self.process.kill()     # --kill-child ends the first process of the namespace, and with it all others
        self.process.wait()

    def call(self, *words):
        inside = ["nsenter", "--all", "--target", str(children_of(self.process.pid)[0]), "--wd=" + self.jobs, "--"]
        done = subprocess.run([*inside, *map(str, words)], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        assert done.returncode == 0, f"{words}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout.strip()

    def on_node2(self, *words):
        return self.call("nsenter", "--target", content(self.path, "node2").decode().strip(), "--net", "--uts", *words)

    def kill_on_node2(self, *words):
        """Kills the processes of the second node that have one of these words in their command or environment."""
        network, killed = self.on_node2("readlink", "/proc/self/ns/net"), []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                command = content(path, "cmdline")
                if os.readlink(path + "/ns/net") == network and any(word.encode() in command + content(path, "environ") for word in words) and \
                        not command.startswith(b"sleep"):       # keeps the network
                    os.kill(int(os.path.basename(path)), signal.SIGKILL)
                    killed.append(command)
            except OSError:
                pass        # it has ended
        assert killed, words

    def wait(self, condition, limit=120):
        wait_until(condition, self.process, limit)


@pytest.fixture(scope="module")
def cluster():
    it = Cluster()
    try:
        it.start()
        yield it
    finally:
        it.close()


class Job:
    """A script that trains in the folder OUT."""

    def __init__(self, cluster, script, name, *options, train=(), steps=STEPS):
        self.cluster, self.script, self.name = cluster, script, name
        self.out = os.path.join(cluster.jobs, name)
        self.id = cluster.call("sbatch", "--parsable", "--time=10", "--output=%x.log", f"--job-name={name}", *options,
                               os.path.join(SCRIPTS, script), *NET, "--checkpoint-every", f"{INTERVAL}s", "--steps", steps, *train, "--out", self.out)

    def field(self, name):
        return re.search(rf"\b{name}=(\S*)", self.cluster.call("scontrol", "show", "job", self.id))[1]

    def wait_for_state(self, *states):
        self.cluster.wait(lambda: self.field("JobState") in states)
        return self.field("JobState")

    def ended(self):
        return self.wait_for_state("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT")

    def steps(self):
        try:
            return len(losses(self.out))
        except (OSError, ValueError):       # no file, or half a line
            return 0

    def wait_for_requeue(self):
        self.cluster.wait(lambda: self.field("Restarts") != "0" and self.field("JobState") in ("PENDING", "RUNNING"))

    def starts_again(self):
        """After a requeue, Slurm waits for two minutes."""
        if self.field("JobState") == "PENDING":
            self.cluster.call("scontrol", "update", f"JobId={self.id}", "StartTime=now")
        self.wait_for_state("RUNNING")

    def wait_for_steps(self, steps):
        self.cluster.wait(lambda: self.steps() >= steps)

    def log(self):
        return content(self.cluster.jobs, self.name + ".log").decode(errors="replace")

    def config(self):
        return json.loads(content(self.out, "config.json"))

    def checkpoint(self):
        return max((int(re.search(r"(\d+)\.safetensors", path)[1]) for path in glob.glob(f"{self.out}/checkpoint-*.safetensors")), default=0)

    def is_whole(self):
        """The losses of all steps are those of a run that nothing interrupted."""
        count = self.steps()
        whole = os.path.join(self.cluster.jobs, "whole")
        if not os.path.exists(whole) or len(losses(whole)) < count:
            stargrad("train", *NET, "--steps", count, "--resume", "auto", "--out", whole)
        assert losses(self.out) == losses(whole)[:count], self.name

    def stopped_with_checkpoint(self):
        """No step is lost."""
        said = re.findall(r"stopped after step (\d+); checkpoint written", self.log())
        assert said and int(said[-1]) == self.steps() == self.checkpoint(), (said, self.steps(), self.checkpoint(), self.log())

    def most_lost(self):
        """An interval; or another, if the newest checkpoint was being written."""
        return INTERVAL * (2 if glob.glob(f"{self.out}/checkpoint-*.part.*") else 1)

    def continues(self, most=0):
        """The same command, submitted again, loses at most so many steps."""
        done = self.steps()
        again = Job(self.cluster, self.script, self.name, steps=done + 5)
        assert again.ended() == "COMPLETED", self.log()
        assert self.steps() == done + 5
        assert done - most <= self.config()["continued"][-1]["step"] <= done, (self.config()["continued"], done)
        self.is_whole()


@pytest.fixture(scope="module")
def at_the_limit(cluster):
    """Slurm counts limits in minutes, checks them every 30 seconds, and sends a signal up to a minute early. SIGURG has no effect."""
    return {name: Job(cluster, script, name, *options) for name, script, *options in (
        ("requeue", "requeue.sh", "--time=1", "--signal=B:USR1@20"),
        ("srun", "srun.sh", "--time=1", "--signal=USR1@20"),
        ("srun-term", "srun.sh", "--time=1", "--signal=URG@20"),
        ("mpirun", "mpirun.sh", "--time=1", "--signal=B:USR1@20"),
        ("mpirun-term", "mpirun.sh", "--time=1", "--signal=URG@20"),
        ("launch", "launch.sh", "--time=1", "--signal=B:USR1@20"),
        ("launch-term", "launch.sh", "--time=1", "--signal=URG@20"),
        ("stop-before", "stop-before.sh", "--time=3"))}


# ---- scancel and failures of processes, while the jobs of at_the_limit run

@pytest.mark.parametrize("script,options", (("srun.sh", ()), ("srun.sh", ("--batch", "--signal=USR1")), ("requeue.sh", ()),
                                            ("mpirun.sh", ("--batch", "--signal=USR1")), ("launch.sh", ("--batch", "--signal=USR1"))))
def test_scancel(cluster, at_the_limit, script, options):
    job = Job(cluster, script, "-".join(("scancel", script, *options)))
    job.wait_for_steps(5)
    cluster.call("scancel", *options, job.id)
    if script == "requeue.sh":
        assert job.ended() == "CANCELLED"
    job.ended()
    job.stopped_with_checkpoint()
    assert job.config()["hosts"] == {"node1": [0], "node2": [1]} and job.config()["job"] == {"id": job.id, "restarts": 0}
    job.continues()


def test_scancel_without_checkpoint(cluster):
    """mpirun kills its ranks."""
    job = Job(cluster, "mpirun.sh", "scancel-mpirun")
    job.wait_for_steps(INTERVAL + 5)
    cluster.call("scancel", job.id)
    assert job.ended() == "CANCELLED"
    job.continues(most=job.most_lost())


def test_requeue_of_a_running_job(cluster):
    """As by a preemption: the job ends like one that is cancelled."""
    job = Job(cluster, "srun.sh", "preempted")
    job.wait_for_steps(5)
    cluster.call("scontrol", "requeue", job.id)
    job.wait_for_requeue()
    job.stopped_with_checkpoint()
    done = job.steps()
    job.starts_again()
    job.wait_for_steps(done + 3)
    assert job.config()["continued"][-1]["step"] == done
    cluster.call("scancel", job.id)
    job.ended()
    job.is_whole()


@pytest.mark.parametrize("script", ("srun.sh", "mpirun.sh", "launch.sh"))
def test_killed_step(cluster, script):
    """The processes of a node are killed. launch starts the run again. Else Slurm's own process for them is killed, too: the job fails, and the same
    command continues."""
    job = Job(cluster, script, "step-" + script, train=("--stall-timeout", 10))
    job.wait_for_steps(INTERVAL + 5)
    done = job.steps()
    cluster.kill_on_node2(f"SLURM_JOB_ID={job.id}\0", *([f"slurmstepd: [{job.id}."] if script != "launch.sh" else []))
    if script != "launch.sh":
        assert job.ended() == "FAILED"
        return job.continues(most=job.most_lost())
    cluster.wait(lambda: "continued" in job.config())
    step = job.config()["continued"][-1]["step"]
    assert done - 2 * INTERVAL <= step
    job.wait_for_steps(step + INTERVAL + 5)
    cluster.call("scancel", "--batch", "--signal=USR1", job.id)
    job.ended()
    job.stopped_with_checkpoint()
    job.is_whole()


# ---- the time limit

def test_requeue_at_the_limit(at_the_limit, cluster):
    """The script itself puts the job back into the queue, as often as its run needs. Slurm then waits for two minutes."""
    job = at_the_limit["requeue"]
    job.wait_for_requeue()
    done = int(re.search(r"stopped after step (\d+); checkpoint written", job.log())[1])
    job.starts_again()
    job.wait_for_steps(done + 3)
    config = job.config()
    assert config["continued"][0]["step"] == done
    assert (config["job"], config["continued"][0]["job"]) == ({"id": job.id, "restarts": 0}, {"id": job.id, "restarts": 1})
    cluster.call("scancel", job.id)
    job.ended()
    job.stopped_with_checkpoint()
    job.is_whole()


@pytest.mark.parametrize("name", ("srun", "srun-term", "mpirun", "launch", "stop-before"))
def test_time_limit(at_the_limit, name):
    job = at_the_limit[name]
    job.ended()
    assert (LIMIT in job.log()) == (name == "srun-term"), job.log()
    job.stopped_with_checkpoint()
    job.continues()


@pytest.mark.parametrize("name", ("mpirun-term", "launch-term"))
def test_time_limit_without_checkpoint(at_the_limit, name):
    """Slurm ends mpirun's daemon on the other node, and so the ranks. The newest checkpoint is as old as the interval allows."""
    job = at_the_limit[name]
    job.ended()
    assert LIMIT in job.log() and "checkpoint written" not in job.log(), job.log()
    job.continues(most=job.most_lost())


# ---- a failure of a node

def test_dead_node(cluster):
    """The second node loses its network and all its processes. Slurm requeues the job once the node does not answer."""
    jobs = [Job(cluster, script, "node-" + script, "--requeue") for script in ("requeue.sh", "mpirun.sh", "launch.sh")]
    for job in jobs:
        job.wait_for_steps(INTERVAL + 5)
    cluster.call("ip", "link", "set", "veth1", "down")
    cluster.kill_on_node2("")
    for job in jobs:
        job.wait_for_requeue()
        assert "DUE TO NODE FAILURE" in job.log(), job.log()
    done = {job: (job.steps() - job.most_lost(), job.steps()) for job in jobs}
    for name in ("spool-node2", "tmp-node2"):       # of which nothing may be left when the node starts again
        shutil.rmtree(os.path.join(cluster.path, name))
        os.mkdir(os.path.join(cluster.path, name))
    cluster.call("ip", "link", "set", "veth1", "up")
    cluster.on_node2("slurmd")
    for job in jobs:
        job.starts_again()
    for job in jobs:
        job.wait_for_steps(done[job][1] + 3)
        last = job.config()["continued"][-1]
        assert done[job][0] <= last["step"] <= done[job][1] and last["job"] == {"id": job.id, "restarts": 1}, (last, done[job])
        cluster.call("scancel", "--signal=KILL", "--full", job.id)
        job.ended()
        job.is_whole()


# ---- arrays

def test_array(cluster):
    """Each job of an array trains with its own seed, in its own folder."""
    cluster.call("sbatch", "--wait", "--array=0-1", "--cpus-per-task=1", "--output=array-%a.log",
                 os.path.join(SCRIPTS, "array.sh"), *NET, "--steps", 3)
    first, second = (os.path.join(cluster.jobs, f"runs/seed-{seed}") for seed in (0, 1))
    assert len(losses(first)) == len(losses(second)) == 3 and losses(first) != losses(second)
    jobs = [json.loads(content(path, "config.json"))["job"] for path in (first, second)]
    assert [job["array"].partition("_")[2] for job in jobs] == ["0", "1"] and jobs[0]["id"] != jobs[1]["id"], jobs


def test_array_as_a_chain(cluster):
    """Jobs one after the other continue a run. Those after its end have nothing to do."""
    job = Job(cluster, "srun.sh", "chain", "--array=1-3%1", steps=5)
    cluster.wait(lambda: cluster.call("squeue", "-h", "-j", job.id) == "")
    assert job.steps() == 5 and "continued" not in job.config(), job.log()


if __name__ == "__main__":
    main(globals())
