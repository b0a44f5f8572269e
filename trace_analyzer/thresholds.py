"""The thresholds of the definitions, named, in one place. Starting points with physical reasons.

``docs/definitions.md`` says how far the verdicts depend on them.
"""

from trace_analyzer.units import NS_PER_MS, NS_PER_US

# Idle causes
PAUSE_NS = 10 * NS_PER_MS
"""A shorter silence of all threads and devices is plain Python; a longer one may be a recording pause."""
PAUSE_SPAN_RATIO = 0.5
"""A silence of over half the trace is a pause, whatever was recorded."""
CPU_OPERATOR_NS = NS_PER_MS
"""Dispatch takes microseconds: an operator that is busy longer by itself computes on the CPU."""
SLOW_LAUNCH_NS = NS_PER_MS
SLOW_LAUNCH_MEDIANS = 20
"""A launch call beyond both is out of all proportion: it loads a module first."""
LAUNCH_LATENCY_QUANTILE = 0.99
LAUNCH_LATENCY_MAX_NS = 100 * NS_PER_US
"""No device needs longer from an accepted launch to the kernel's start when nothing is queued."""
DEVICE_GAP_NS = 20 * NS_PER_US
"""Between queued kernels devices idle for 1 to 10 us; more needs an explanation."""

# Run-ahead
BEHIND_EMPTY_RATIO = 0.5
BEHIND_BUSY_RATIO = 0.9
AHEAD_LEAD_CALLS = 10
AHEAD_EMPTY_RATIO = 0.1

# Bound of a kernel
TINY_KERNEL_NS = 3 * NS_PER_US
"""Below it the fixed cost of starting and draining a kernel dominates."""
SMALL_KERNEL_NS = 20 * NS_PER_US
"""Below it, fewer blocks than SMs leave the device unfilled; above, few blocks may be a persistent kernel."""

# Steps
OUTLIER_MEDIANS = 1.5
CUT_RATIO = 0.5
"""A first or last step with less than this share of the median step's activities was cut by the recording."""
MIN_STEADY_STEPS = 2

STEP_REPEATS = 3
"""An annotation that comes less often marks no rhythm."""
STEP_COVERAGE = 0.8
"""An annotation that encloses less of the launches is a part of a step, not the step."""

# Verdict
WAITING_WINS_RATIO = 0.6
"""Waiting can be won back whole, kernel time only in part."""
WAITING_WINDOW_RATIO = 0.25
RUNNER_UP_RATIO = 0.75
COLD_START_GAP_NS = NS_PER_MS
COLD_START_RATIO = 0.5
INSUFFICIENT_KERNELS = 10
INSUFFICIENT_TIME_NS = NS_PER_MS
UNKNOWN_RATIO = 0.7
"""Above this share of the window without a known cause nothing can be judged."""

# Confidence
GOOD_COVERAGE = 0.9
POOR_COVERAGE = 0.5
UNKNOWN_DOUBT_RATIO = 0.2
CONTRACTION_DOUBT_RATIO = 0.25
"""Below this share of kernel time, unknown shapes of contractions cannot turn the verdict."""
PROFILER_DOUBT_EVENTS_PER_LAUNCH = 10
"""With this many recorded host events per launch, recording itself slows the CPU noticeably."""

# Advice
WORTH_RATIO = 0.02
"""Advice that can save less than this share of the window is noise."""
