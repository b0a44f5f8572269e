"""Test `analyze record`: the script behaves as without the profiler, and a trace is complete or absent."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import COMMAND, ROOT, command, environment, ran

from trace_analyzer.capture import facts, record
from trace_analyzer.capture.recorder import VARIABLE, Plan, arm
from trace_analyzer.pipeline import analyze

pytestmark = pytest.mark.slow

TRAIN = """
import gc, sys, time, torch
def train(steps, wait=0.0):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(wait)
"""


def run(folder: Path, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return command("record", *arguments, cwd=folder, env=environment(OMP_NUM_THREADS="1", **more), input=stdin)


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start to record, with pipes, as the leader of a group of processes, and return when the script is ready."""
    process = subprocess.Popen(
        [*COMMAND, "record", *arguments], cwd=folder, env=environment(OMP_NUM_THREADS="1"), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def left(folder: Path) -> list[str]:
    """Return all files that the run left, hidden ones, too."""
    return sorted(path.name for path in folder.iterdir() if path.suffix not in {".py", ""} or path.name.startswith("."))


def marks(trace: Path) -> list[str]:
    names = analyze(trace).tables["host_events"].get_column("name").to_list()
    return sorted({name for name in names if name.startswith("ProfilerStep")})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "train.py", "--lr", "1"], "train"),
        (["-m", "package.train", "x"], "train"),
        (["torchrun", "--nproc-per-node", "2", "dir/main.py"], "main"),
        (["python", "-m", "torch.distributed.run", "-m", "package.loop"], "loop"),
        (["/usr/bin/serve"], "serve"),
    ],
)
def test_a_trace_is_named_after_the_script(words: list[str], name: str) -> None:
    assert record.script_name(words) == name


def test_a_script_and_a_module_are_run_by_this_python() -> None:
    assert record.full_command(["train.py", "1"]) == [sys.executable, "train.py", "1"]
    assert record.full_command(["-m", "train"]) == [sys.executable, "-m", "train"]
    assert record.full_command(["python3", "train.py"]) == ["python3", "train.py"]


def test_a_process_without_a_plan_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = list(sys.meta_path)
    arm()
    assert sys.meta_path == before
    assert Plan(folder="x", steps=3).to_text() == (
        '{"folder": "x", "steps": 3, "seconds": null, "after": 0.0, "skip": 3, "level": "light"}'
    )


def test_a_recorded_process_needs_no_package_but_torch() -> None:
    """Its Python may be another one, which finds this package on a path and lacks what it depends on."""
    done = ran(sys.executable, "-S", "-c", "import trace_analyzer.capture.recorder, trace_analyzer.capture.session")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_without_torch_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys; print(sys.argv[1:], sys.stdin.read()); sys.exit(7)")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.mine = 1")
    done = run(tmp_path, "plain.py", "--steps", "-x", stdin="hello")
    assert (done.returncode, done.stdout) == (7, "['--steps', '-x'] hello\n")
    assert done.stderr == (
        f"analyze: plain was not recorded: {sys.executable} has torch, and nothing imported it\n"
        if importlib.util.find_spec("torch")
        else f"analyze: plain was not recorded: {sys.executable} has no torch\n"
    )
    assert left(tmp_path) == []
    (tmp_path / "plain.py").write_text("import builtins, sys; print(builtins.mine, 'capture/hook' in str(sys.path))")
    done = run(tmp_path, "--", sys.executable, "plain.py", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path / 'own'}")
    assert (done.returncode, done.stdout) == (0, "1 False\n")


def test_an_interpreter_without_torch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trace_analyzer.capture import recorder

    monkeypatch.setattr("trace_analyzer.capture.recorder.importlib.util.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    recorder._report_missing_torch(Plan(folder=str(tmp_path)))
    (reported,) = tmp_path.glob("*.interpreter")
    assert reported.read_text() == f"{sys.executable} has no torch"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "no-such-command"], "no-such-command: No such file or directory"),
        (["--steps", "3", "--seconds", "3", "x.py"], "--steps contradicts --seconds"),
        (["--after", "3", "x.py"], "--after needs --seconds"),
        (["-o", "/dev/null/x", "x.py"], "--output /dev/null/x: Not a directory"),
        ([], "Missing argument"),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_signals_reach_the_command_and_end_it_alike(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    for number, code in ((signal.SIGTERM, 9), (signal.SIGINT, -signal.SIGINT)):
        process = started(tmp_path, "wait.py")
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == code
    assert left(tmp_path) == []


def test_a_training_script_with_forking_and_spawning_loaders(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        TRAIN + "if __name__ == '__main__':\n"
        "    data = torch.utils.data.TensorDataset(torch.ones(8, 8))\n"
        "    for how in ('fork', 'spawn'):\n"
        "        loader = torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context=how)\n"
        "        print(how, sum(1 for _ in loader))\n"
        "        train(8); gc.collect()\n"
        "    print(sys.argv[1:], sys.stdin.read()); sys.exit(3)\n"
    )
    done = run(tmp_path, "--steps", "3", "--skip", "1", "--level=standard", "train.py", "--steps=9", stdin="hello")
    assert (done.returncode, done.stdout) == (3, "fork 8\nspawn 8\n['--steps=9'] hello\n"), done.stderr
    assert left(tmp_path) == ["train.json.gz", "train.report.html"]
    report = analyze(tmp_path / "train.json.gz")
    assert report.trace.recorded.shapes
    assert report.trace.settings.measured_step_ms is not None
    assert marks(tmp_path / "train.json.gz") == ["ProfilerStep#6", "ProfilerStep#7", "ProfilerStep#8"]
    assert "analyze: trace: train.json.gz" in done.stderr
    if not torch.cuda.is_available():
        assert f"analyze: torch sees no CUDA device ({sys.executable}" in done.stderr
        assert "only the CPU was recorded\n" in done.stderr


@pytest.mark.parametrize(("steps", "traces"), [("20", ["train.json.gz"]), ("200", [])], ids=["during", "before"])
def test_an_interrupted_script_leaves_a_whole_trace_or_none(tmp_path: Path, steps: str, traces: list[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN + "train(45)\nprint('ready', flush=True)\ntrain(1)\ntime.sleep(60)\n")
    process = started(tmp_path, "--skip=0", "--no-report", f"--steps={steps}", "train.py")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in reported
    assert left(tmp_path) == traces
    for trace in traces:
        assert not [note.code for note in analyze(tmp_path / trace).notes if note.code == "truncated"]
        assert marks(tmp_path / trace)


def test_a_module_that_fails_and_a_loop_that_is_too_short(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "loop.py").write_text(TRAIN + "train(4)\nraise SystemError('mine')\n")
    done = run(tmp_path, "--", "-m", "loop")
    assert done.returncode == 1
    assert "SystemError: mine" in done.stderr
    assert "loop was not recorded: nothing was recorded: the loop ended after 3 of 17 steps" in done.stderr
    assert left(tmp_path) == []


def test_seconds_record_all_threads_of_a_script_without_an_optimizer(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "serve.py").write_text(
        "import threading, time, torch\n"
        "def serve(operator):\n"
        "    end = time.monotonic() + 3\n"
        "    while time.monotonic() < end: operator(torch.ones(8, 8)); time.sleep(0.01)\n"
        "thread = threading.Thread(target=serve, args=(torch.relu,)); thread.start(); serve(torch.tanh); thread.join()\n"
    )
    done = run(tmp_path, "--seconds=0.5", "--after=0.5", "--no-report", "serve.py")
    assert done.returncode == 0, done.stderr
    report = analyze(tmp_path / "serve.json.gz")
    operators = report.tables["operators"].get_column("name")
    assert {"aten::relu", "aten::tanh"} <= set(operators)
    assert report.trace.duration_ns < 2e9


def test_every_rank_gets_its_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN + "train(12)\n")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    done = run(tmp_path, "--steps=2", "--skip=0", "--no-report", "--", *launcher)
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == ["train.rank0.json.gz", "train.rank1.json.gz"]


OWN = """
from torch.profiler import profile, schedule
def train_profiled(steps):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters())
    ready = lambda p: (p.export_chrome_trace(f"own{p.step_num}.json"), print("own", p.step_num))
    with profile(schedule=schedule(wait=1, warmup=1, active=3, repeat=1), on_trace_ready=ready) as p:
        for _ in range(steps):
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            p.step()
"""


@pytest.mark.parametrize(
    ("options", "body"),
    [(["--steps=2", "--skip=0"], "train(9)"), (["--seconds=60"], "time.sleep(0.5)")],
    ids=["steps", "seconds"],
)
def test_a_script_keeps_its_own_profiler(tmp_path: Path, options: list[str], body: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(f"{TRAIN}{OWN}train_profiled(8); {body}; sys.exit(5)\n")
    done = run(tmp_path, *options, "--no-report", "train.py")
    assert (done.returncode, done.stdout) == (5, "own 5\n"), done.stderr
    assert left(tmp_path) == ["own5.json", "train.json.gz"]
    assert analyze(tmp_path / "own5.json").trace.event_count > 0


def test_a_profiler_in_its_warm_up_is_at_work() -> None:
    """Check a profiler in its warm-up: a recording begun then would take its results, and its export would crash."""
    torch = pytest.importorskip("torch")
    facts.follow_profilers()
    with torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=2, active=1, repeat=1)) as profiler:
        actual = [facts.profiler_at_work()]
        for _ in range(5):
            profiler.step()
            actual.append(facts.profiler_at_work())
    assert actual == [False, True, True, True, False, False]
    assert not facts.profiler_at_work()


@pytest.mark.parametrize(
    ("end", "code", "printed"),
    [
        ("os._exit(7)", 7, ""),
        ("os.execv(sys.executable, [sys.executable, '-c', 'print(42)'])", 0, "42\n"),
    ],
    ids=["exit", "exec"],
)
def test_a_script_that_ends_at_once_keeps_what_was_complete(tmp_path: Path, end: str, code: int, printed: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(f"{TRAIN}import os\ntrain(int(sys.argv[1]))\n{end}\n")
    if printed:
        done = run(tmp_path, "--steps=2", "--skip=0", "--no-report", "--", "train.py", "3")
        assert (done.returncode, done.stdout, left(tmp_path)) == (code, printed, [])
        assert "train was not recorded: its process ended at once" in done.stderr
    done = run(tmp_path, "--steps=2", "--skip=0", "--no-report", "--", "train.py", "9")
    assert (done.returncode, done.stdout, left(tmp_path)) == (code, printed, ["train.json.gz"])


def test_a_script_may_change_its_folder_and_a_module_has_relative_imports(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text(TRAIN)
    (package / "main.py").write_text("import os\nfrom .loop import train\nos.chdir('/')\ntrain(9)\n")
    done = run(tmp_path, "--steps=2", "--skip=0", "--no-report", "--", "-m", "package.main")
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == ["main.json.gz"]
