"""A Markdown file with measurements on a GPU. Each program that writes to it has one section with one table. The section is
rewritten after every row, so that an interruption loses no results. Sections of other programs do not change."""
import datetime
import os
import pathlib
import re
import subprocess
import time

FILE = pathlib.Path(os.environ.get("GPU_TABLE", "gpu.md"))


def smi(query):
    """Returns properties of the first GPU from nvidia-smi; None if there is no GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", f"--query-gpu={query}", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else [field.strip() for field in done.stdout.split(",")]


def machine():
    """Returns the GPU, as in "NVIDIA H100 80GB HBM3, driver 580.82, 81559 MiB", or "no GPU", and the processor."""
    found = smi("name,driver_version,memory.total")
    emulated = os.environ.get("STARGRAD_EMULATED_GPUS")
    device = (f"{found[0]}, driver {found[1]}, {found[2]} MiB" if found else
              f"no GPU: {emulated} emulated on CPU threads, which say nothing of speed" if emulated else "no GPU")
    with open("/proc/cpuinfo") as f:
        names = re.findall(r"^model name\s*: (.*)$", f.read(), re.M)
    return f"{device}; {os.cpu_count()} cores{f' of {names[0]}' if names else ''}"


class Table:
    def __init__(self, section, columns, about=""):
        self.section, self.columns, self.about = section, columns, about
        self.rows, self.notes, self.started = [], [], time.monotonic()
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        self.device = machine()
        self.write()

    def add(self, *cells):
        self.rows.append([str(cell) for cell in cells])
        self.write()

    def text(self):
        lines = [f"## {self.section}", "", f"{self.device}. {self.about}{', ' if self.about else ''}{self.date}; "
                 f"{time.monotonic() - self.started:.0f} s in all.", ""]
        for cells in (self.columns, ["---"] * len(self.columns), *self.rows):
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        return "\n".join(lines + [""] + [f"- {note}" for note in self.notes] + [""] * bool(self.notes))

    def write(self):
        """Writes the file and keeps the sections of other programs. The file is replaced atomically."""
        old = FILE.read_text() if FILE.exists() else ""
        others = [part for part in re.split(r"^(?=## )", old, flags=re.M)[1:] if not part.startswith(f"## {self.section}\n")]
        beside = FILE.with_name(FILE.name + ".new")
        beside.write_text("# Stargrad on GPUs\n\n" + "\n".join(part.strip("\n") + "\n" for part in [*others, self.text()]))
        beside.replace(FILE)
