"""docs/reference/ agrees with the code: variables, options of runs, keys of machine files, fields of metrics, options of commands."""
import functools
import json
import os
import re
import subprocess

from markdown import BUILD, SOURCE, STARGRAD, main, pages, prose, pytest, read

# Options that pages and README.md name and that belong to programs of others.
OTHERS = {
    "mpirun": "bind-to map-by mca oversubscribe report-bindings",
    "sbatch, srun, scancel": "array batch cpu-bind cpus-per-task exclusive gres kill-on-bad-exit mpi no-kill nodes ntasks ntasks-per-node open-mode "
                             "overcommit requeue signal time wrap",
    "configure of Autoconf and of StarPU": "datadir docdir enable-maxbuffers libdir prefix",
    "configure of Stargrad, for any library": "with-LIBRARY",
    "pip, pkg-config": "cflags libs no-index",
    "ncu": "metrics",
    "podman": "format rm userns",
    "ompi_info": "all parsable",
    "tar": "concatenate sort",
    "umount": "lazy",
    "torchrun": "nproc-per-node",
    "bench/memory": "more",
    "stargrad.convert": "columns label text",
}


def sources(*folders, endings=(".c", ".h", ".cu", ".cc", ".py", ".sh", ".am")):
    """The files of code below FOLDERS; scripts have no ending."""
    for folder in folders:
        for where, inner, files in os.walk(os.path.join(SOURCE, folder)):
            inner[:] = [name for name in inner if not name.startswith(".") and name not in ("build", "results", "__pycache__")]
            yield from (os.path.relpath(os.path.join(where, file), SOURCE) for file in files if file.endswith(endings) or "." not in file)


def code_words(page):
    """The words in `code` of a page."""
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


def rows(page, heading=None):
    """The words in `code` of the first cells of the tables of a page, or of the section HEADING."""
    text = read(page)
    if heading:
        level = heading.split()[0]
        text = text.split(f"\n{heading}\n", 1)[1]
        text = re.split(rf"^#{{1,{len(level)}}} ", text, maxsplit=1, flags=re.M)[0]
    return {word for cell in re.findall(r"^\| (`[^|]*) \|", text, flags=re.M) for word in re.findall(r"`([^`]+)`", cell)}


def program():
    if not os.access(STARGRAD, os.X_OK):
        pytest.skip(f"there is no program {STARGRAD}")
    return STARGRAD


def call(*words):
    done = subprocess.run([program(), *map(str, words)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def test_environment_has_every_variable_and_no_other():
    files = [*sources("bench", "build-aux", "cli", "codelets", "datasets", "duplicates", "graphs", "planner", "python", "report", "runtime",
                      "tests", "volumes"), "Makefile.am", "quickstart", ".ci/run"]
    known = {name for file in files if os.path.exists(os.path.join(SOURCE, file))
             for name in re.findall(r"\bSTARGRAD_[A-Z_]*[A-Z]\b", read(file))}
    listed = set(re.findall(r"\bSTARGRAD_[A-Z_]*[A-Z]\b", read("docs/reference/environment.md")))
    assert "STARGRAD_MAX_ISA" in known
    assert listed == known, f"missing: {sorted(known - listed)}, unknown: {sorted(listed - known)}"


def test_environment_has_the_variables_that_c_code_reads():
    known = {name for file in sources("cli", "codelets", "graphs", "planner", "report", "runtime", "volumes", endings=(".c", ".cu"))
             for name in re.findall(r'(?:getenv|sgrad_variable|check_place)\("([A-Z_0-9]+)"', read(file))}
    known |= set(re.findall(r'^    \{ "(STAR[A-Z_]+)"', read("runtime/environment.c"), flags=re.M))
    missing = known - code_words("docs/reference/environment.md")
    assert "TMPDIR" in known and not missing, f"missing: {sorted(missing)}"


def options_of_runs():
    text = read("graphs/rundir/fields.c")
    others = text[text.index("others[] = {"):].split("};", 1)[0]
    return set(re.findall(r'FIELD\("(\w+)"', text)) | set(re.findall(r'\{ "(\w+)",', others))


def test_config_has_every_option_of_a_run_and_no_other():
    known, listed = options_of_runs(), rows("docs/reference/config-json.md", "## options")
    assert "seed" in known and listed == known, f"missing: {sorted(known - listed)}, unknown: {sorted(listed - known)}"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of short runs of networks with different losses."""
    program()
    work = tmp_path_factory.mktemp("runs")
    table, text, gpt = work / "table.csv", work / "text", "gpt:layers=1,heads=1,width=32,context=32"
    table.write_text("a,b,c\n" + "1,2,3.5\n2,1,4.5\n3,3,1.5\n" * 8)
    text.write_text("to be or not to be " * 200)
    runs = {"classes": ("convnet", "digits", "--tta", "flip"), "many": ("mlp", "synthetic:8x8x1,20,640"),
            "numbers": ("mlp", f"csv:{table}"), "tokens": (gpt, f"text:{text},32")}
    for name, (model, data, *more) in runs.items():
        call("train", "--model", model, "--data", data, "--batch", 8, "--steps", 2, "--cpus", 1, "--quiet", "--evaluate-last", *more,
             "--out", work / name)
    call("train", "--out", work / "classes", "--resume", "--steps", 3, "--cpus", 1, "--quiet")
    return [str(work / name) for name in runs]


def keys(value, without=()):
    """The keys of a JSON value and of what it contains, except of objects whose key is in WITHOUT."""
    if isinstance(value, list):
        return set().union(*(keys(one, without) for one in value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys(inner, without) for key, inner in value.items() if key not in without))


def test_config_has_every_key_that_a_run_writes(folders):
    words = code_words("docs/reference/config-json.md")
    for folder in folders:
        with open(os.path.join(folder, "config.json")) as file:
            missing = keys(json.load(file), without=("environment", "hosts")) - words
        assert not missing, f"{folder}: {sorted(missing)}"


def test_metrics_has_every_field_that_a_run_writes(folders):
    words, text = code_words("docs/reference/metrics.md"), read("docs/reference/metrics.md")
    for folder in folders:
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            fields = {field for line in file for field in json.loads(line)}
        missing = {field for field in fields if re.sub(r"^(test|train)_(?!loss)", "", field) not in words}
        assert "test_loss" in fields and not missing, f"{folder}: {sorted(missing)}"
    assert "`test_METRIC`" in text and "`train_METRIC`" in text


def test_metrics_has_every_metric_of_a_loss():
    lists = [found for file in sources("codelets/ops", endings=(".c",)) for found in re.findall(r"\.metrics = \{(.*?)\} \}", read(file), flags=re.S)]
    known = {name for one in lists for name in re.findall(r'\{ "(\w+)", "', one)} - {"token"}      # of a sampler, which no run has
    missing = known - code_words("docs/reference/metrics.md")
    assert "top1" in known and not missing, f"missing: {sorted(missing)}"


def test_metrics_has_every_result_of_train(folders):
    result = json.loads(call("train", "--model", "mlp", "--data", "digits", "--steps", 1, "--cpus", 1, "--best", "--json", "--out",
                             folders[0] + "-json"))
    missing = {re.sub(r"^test_", "", field) for field in result} - code_words("docs/reference/metrics.md")
    assert "best_step" in result and not missing, f"missing: {sorted(missing)}"


def test_machine_files_has_every_key():
    """The tables of the page are those of plan --help: key, type, unit and range, whether it is required, meaning."""
    text = call("plan", "--help").split("A machine file is", 1)[1]
    known = {key: (kind, required, " ".join(meaning.split())) for key, kind, required, meaning in
             re.findall(r"^  (\S+)\n      ([^;\n]+); (.+)\n((?:      .+\n?)+)", text, flags=re.M)}
    listed = {cells[0]: tuple(cells[1:]) for row in re.findall(r"^\| (`[a-z].*) \|$", read("docs/reference/machine-files.md"), flags=re.M)
              for cells in [row.replace("`", "").split(" | ")]}
    assert "network.cpu_seconds_per_byte" in known and len(re.findall(r"^  [a-z]\S+$", text, flags=re.M)) == len(known)
    for key in known.keys() | listed.keys():
        assert listed.get(key) == known.get(key), f"{key}: on the page: {listed.get(key)}; in plan --help: {known.get(key)}"


@functools.lru_cache
def options_of_commands():
    commands = re.findall(r"^  ([a-z-]+) {2,}", call("--help"), flags=re.M)
    assert "train" in commands
    known = {"help", "version"}
    for command in commands:
        for option, value in re.findall(r"^ +(?:-., )?--([a-z0-9-]+)([=\[]?)", call(command, "--help"), flags=re.M):
            known.add(option)
            if not value or option == "best":      # a flag, which has an opposite; that of --best may have a metric
                known.add(option[3:] if option.startswith("no-") else f"no-{option}")
    return commands, known


def options_of_scripts():
    """What configure takes, and the programs of bench/ and tests/, in Python and in shells."""
    known = {f"{kind.lower()}-{name}" for kind, name in re.findall(r"AC_ARG_(WITH|ENABLE)\(\[?([a-z-]+)", read("configure.ac"))}
    for file in sources("bench", "tests"):
        text = read(file)
        known |= {name for one in re.findall(r"add_argument\((.*)", text) for name in re.findall(r'"--([a-z-]+)"', one)}
        known |= set(re.findall(r"^\s*--([a-z-]+)\)", text, flags=re.M))
    return known


def test_pages_name_no_unknown_option():
    _, known = options_of_commands()
    known = known | options_of_scripts() | options_of_configure() | {option for words in OTHERS.values() for option in words.split()}
    unknown = {}
    for page in pages():
        named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*)", read(page)))
        wrong = {name for name in named if name not in known and not (name.endswith("-") and any(k.startswith(name) for k in known))}
        if wrong:
            unknown[page] = sorted(wrong)
    assert not unknown, f"options of no command (OTHERS in tests/docs/reference_pages.py has those of other programs): {unknown}"


def libraries():
    """The optional libraries of configure.ac: option, name, packages, use."""
    return re.findall(r"^SGRAD_LIBRARY\(\[([^]]*)\], \[([^]]*)\], \[([^]]*)\], \[([^]]*)\]", read("configure.ac"), flags=re.M)


def options_of_configure():
    options = re.findall(r"AC_ARG_(WITH|ENABLE)\(\[([a-z0-9-]+)\]", read("configure.ac"))
    return {f"{kind.lower()}-{name}" for kind, name in options} | {"disable-optional"} | {f"with-{row[0]}" for row in libraries()}


def test_install_has_every_optional_library_and_no_other():
    known = {(f"`--with-{option}`", *row) for option, *row in libraries()}
    section = read("docs/start/install.md").split("### Optional libraries", 1)[1].split("\n## ", 1)[0]
    listed = {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in section.splitlines() if line.startswith("| `")}
    assert len(known) > 10 and listed == known, f"missing: {sorted(known - listed)}, unknown: {sorted(listed - known)}"


def test_quickstart_installs_every_optional_library():
    packages = set(re.search(r'^packages="(.*?)"', read("quickstart"), flags=re.S | re.M).group(1).split())
    wanted = {word for _, _, words, _ in libraries() for word in words.split() if word.endswith(("-dev", "-compiler"))}
    assert wanted - packages == {"libhighs-dev"}        # Debian 12 has no HiGHS


def test_command_line_has_every_command():
    commands, _ = options_of_commands()
    headings = set(re.findall(r"^### ([a-z-]+)$", read("docs/reference/command-line.md"), flags=re.M))
    assert headings == set(commands), f"missing: {sorted(set(commands) - headings)}, unknown: {sorted(headings - set(commands))}"


def test_c_program_compiles(tmp_path):
    if not os.path.exists(os.path.join(BUILD, "codelets", "operations.h")):
        pytest.skip(f"there is no codelets/operations.h in {BUILD}")
    program = re.search(r"^```c\n(.*?)^```", read("docs/reference/c-api.md"), flags=re.S | re.M).group(1)
    path = tmp_path / "program.c"
    path.write_text(program)
    words = [*os.environ.get("CC", "cc").split(), *"-Wall -Wextra -Werror -fsyntax-only -std=gnu11".split(), f"-I{BUILD}", f"-I{SOURCE}", str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    main(globals())
