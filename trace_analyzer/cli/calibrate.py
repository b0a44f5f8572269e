"""Implement `analyze calibrate`: measure this machine's device, so that reports can show attained rates."""

from pathlib import Path

import click

from trace_analyzer.capture import BUDGET_S
from trace_analyzer.cli import outputs
from trace_analyzer.cli.analyze import positive
from trace_analyzer.cli.options import DEBUG
from trace_analyzer.cli.progress import Progress
from trace_analyzer.errors import UsageError
from trace_analyzer.files import write_text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--device", type=click.Choice(["cuda", "xpu", "cpu"]), help="Measure this kind of device (a GPU if there is one)."
)
@click.option("--quick", is_flag=True, help="Measure fewer sizes, for a shorter time.")
@click.option(
    "--sweep/--no-sweep",
    default=None,
    help="Measure the repeat sweep, which compiles kernels (the default without --quick), or not.",
)
@click.option(
    "--budget",
    type=positive,
    metavar="S",
    default=BUDGET_S,
    help="Omit measurements that would take longer than S seconds in total (60 by default).",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the calibration to FILE instead of the user's folder, where reports find it.",
)
@click.option("--plot", metavar="FILE", help="Draw the calibration as one HTML file.")
@click.option("--force", is_flag=True, help="Overwrite the FILE of --plot.")
@DEBUG
def calibrate(
    device: str | None,
    quick: bool,
    sweep: bool | None,
    budget: float,
    output: str | None,
    plot: str | None,
    force: bool,
) -> int:
    """Measure what this machine's device attains: bandwidth, FLOP/s, launches.

    Needs torch, and exclusive use of the device. Reports on traces of the same device then show the measured peaks
    beside those of the datasheet. On a machine without a GPU, the CPU is measured as a device of its own.
    """
    from trace_analyzer.capture.calibrate import calibrate as measured
    from trace_analyzer.catalog.calibration import calibration_folder, file_name

    if output:
        outputs.check_writable(Path(output), "-", "--output")
    if plot:
        outputs.check_writable(Path(plot), "-", "--plot")
        if Path(plot).exists() and not force:
            raise UsageError(f"--plot {plot}: exists; --force overwrites it")
    with Progress() as progress:
        sweeps = not quick if sweep is None else sweep
        calibration = measured(device, quick=quick, sweep=sweeps, budget_s=budget, progress=progress)
    path = Path(output) if output else calibration_folder() / file_name(calibration)
    if not output:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, calibration.to_json())
    from trace_analyzer.render.calibration import calibration_html, calibration_text, doubts_in_short

    outputs.say(calibration_text(calibration))
    for doubt in doubts_in_short(calibration):
        outputs.complain(f"warning: {doubt}")
    outputs.complain(f"calibration: {path}")
    if plot:
        write_text(Path(plot), calibration_html(calibration))
        outputs.complain(f"plot: {plot}")
    return 0
