"""Name the thresholds of the definitions, in one place: starting points with physical reasons.

``docs/definitions.md`` says how far the verdicts depend on them.
"""

from trace_analyzer.units import NS_PER_MS, NS_PER_S, NS_PER_US

# Idle causes
PAUSE_NS = 10 * NS_PER_MS
"""A shorter silence of all threads and devices is plain Python; a longer one may be a recording pause."""
PAUSE_SPAN_RATIO = 0.5
"""A silence of over half the trace is a pause, whatever was recorded."""
CPU_OPERATOR_NS = NS_PER_MS
"""Dispatch takes microseconds: an operator busy for longer computes on the CPU, or prepares its launch for long."""
SLOW_LAUNCH_NS = NS_PER_MS
SLOW_LAUNCH_MEDIANS = 20
"""A launch call beyond both is out of all proportion: it loads a module first."""
HOST_WAIT_NS = 100_000
"""An uncontended lock, or a queue that holds something, returns within microseconds: what takes longer waits."""
LAUNCH_LATENCY_QUANTILE = 0.99
LAUNCH_LATENCY_MAX_NS = 100 * NS_PER_US
"""No device needs longer from an accepted launch to the kernel's start when nothing is queued."""
DEVICE_GAP_NS = 20 * NS_PER_US
"""Between queued kernels devices idle for 1 to 10 us; more needs an explanation."""
EARLIER_WORK_NS = NS_PER_MS
"""A shorter wait behind work that nobody recorded is not worth a name of its own."""
EARLIER_LAUNCH_RATIO = 0.1
"""An activity that was launched in this first part of a gap waited for the rest of it."""
EARLIER_STREAM_RATIO = 0.1
EARLIER_DEVICE_RATIO = 0.01
"""With more work recorded before, relative to the gap, the recording had begun long before the gap."""
EARLIER_BLOCKED_RATIO = 0.9
"""A CPU that waits for the device all the time launches nothing meanwhile."""
STAGING_NS = 10 * NS_PER_MS
STAGING_NS_PER_BYTE = 1
"""Moving pageable memory into a buffer of the driver takes less: hosts copy several bytes per ns."""

# Run-ahead
BEHIND_EMPTY_RATIO = 0.5
BEHIND_BUSY_RATIO = 0.9
AHEAD_LEAD_CALLS = 10
AHEAD_EMPTY_RATIO = 0.1

DRAIN_QUEUED_WORK_NS = 100 * NS_PER_US
"""With less queued, the CPU had not run ahead: one slow launch uses it up."""

# Bound of a kernel
TINY_KERNEL_NS = 3 * NS_PER_US
"""Below it the fixed cost of starting and draining a kernel dominates."""
SMALL_KERNEL_NS = 20 * NS_PER_US
"""Below it, fewer blocks than SMs leave the device unfilled; above, few blocks may be a persistent kernel."""

# Roofline
LARGE_KERNEL_NS = 50 * NS_PER_US
"""Shorter matmuls may not fill the device, for reasons of their own."""
EQUALLY_SLOW_KINDS = 4
EQUALLY_SLOW_RATIO = 0.75
EQUALLY_SLOW_SPREAD = 0.15
"""Fewer kinds of matmuls, good ones, or ones that differ by more need no common cause."""

KNOWN_RATE_RATIO = 0.5
"""FLOP/s of less than half of a group's time say nothing of the group."""

PRIORS_RATIO = 0.1
"""With FLOP and bytes of less of the time of matmuls and convolutions, the bound rests on the kernels' names alone."""

HALF_ROOF_RATIO = 0.5
"""A kernel that takes twice its time at the roof is held by something else for as long as by the roof."""
BEYOND_ROOF_RATIO = 1.05
"""Arithmetic cannot exceed the device's peak; what does so was computed elsewhere, or is not what its shapes say."""
GOOD_ROOF_RATIO = 0.8
"""Libraries' best matmuls reach 70 to 90 % of a datasheet's peak: above, other kernels win nothing."""
INEFFICIENT_ROOF_RATIO = 0.25
"""Kernels that are made well reach 50 to 90 % of a datasheet's roof; below a quarter neither roof limits them."""

# Copies
SMALL_COPY_BYTES = 64 << 10
"""At the 25 GB/s of PCIe 4.0 x16 this takes 3 us: starting the copy takes as long."""

# Work of a kernel
DEVICE_CLOCK_NS = 40
"""The clocks of devices tick at 1 to 40 ns: durations in nanoseconds are no finer."""
CLOCK_TICKS = 20
"""A duration of fewer ticks is wrong by up to a tenth: one tick at each end."""
REPLAY_KERNELS = 4
"""Shorter sequences of equal kernels recur by chance."""
REPLAY_NEIGHBOURS = 8
"""So many equal kernels in a row are one program's, where the whole sequence of a graph was not recorded."""
REPLAY_CONFIDENCE = 0.5
"""A match that explains less of a graph launch is another program's, or another size's."""

# Steps
OUTLIER_MEDIANS = 1.5
RECURRENCES = 2
"""Slow steps that come again so often, with usual ones between them, are part of the program."""
CUT_RATIO = 0.5
"""A first or last step with less than this share of the median step's activities was cut by the recording."""
MIN_STEADY_STEPS = 2

STEP_REPEATS = 3
"""An annotation that comes less often marks no rhythm."""
STEP_COVERAGE = 0.8
"""An annotation that encloses less of the launches is a part of a step, not the step."""
EDGE_WORK_RATIO = 0.01
"""Before the first real work and after the last, a device does less than this share of its work."""
EDGE_IDLE_RATIO = 0.1
"""Less idle time at an edge of the window changes no verdict."""
LEFT_OUT_RATIO = 0.5
"""A window that leaves out more speaks for the lesser part of the trace."""
INPUT_COPY_RATIO = 0.1
"""Weights cross PCIe at 10 to 60 GB/s: copying them takes longer than computing with them, below some 10,000 rows a weight."""
INPUT_BYTES = 64
"""A few numbers from the host, such as a scale or a step, are fewer bytes; eight tokens are as many."""
OTHER_LAYER_RATIO = 0.5
"""What launches as much of what a layer does is a layer of another kind, not what comes once in a pass."""
VOCABULARY_ROWS = 1024
"""Tables of relative positions have 32 to 512 rows, and layers look them up; vocabularies have thousands."""
VOCABULARY_WIDTH = 512
"""Rotations of positions, which layers look up too, are as wide as a head, 32 to 256; rows of a vocabulary are as wide as the model."""
TURN_LIKENESS = 0.75
"""Updates of two networks share less of what they launch; a log line or an average of weights in every other step is less."""
PERIOD_LIKENESS = 0.9
"""Iterations of a loop differ by an allocation or a log line, not by a tenth of what they launch."""

# Verdict
WAITING_WINS_RATIO = 0.6
"""Waiting can be won back whole, kernel time only in part."""
WAITING_WINDOW_RATIO = 0.25
RUNNER_UP_RATIO = 0.75
OTHER_REGIME_RATIO = 0.1
"""A fix for what is not the limit is worth a word from here on."""
COLD_START_GAP_NS = NS_PER_MS
COLD_START_RATIO = 0.5
INSUFFICIENT_KERNELS = 10
INSUFFICIENT_TIME_NS = NS_PER_MS
EARLIER_TOLD_RATIO = 0.05
"""Less work from before the recording changes no figure of the window by much."""

# Confidence
GOOD_COVERAGE = 0.9
POOR_COVERAGE = 0.5
UNKNOWN_DOUBT_RATIO = 0.2
MATMUL_DOUBT_RATIO = 0.25
"""Below this share of kernel time, unknown shapes of matmuls and convolutions cannot turn the verdict."""

# The profiler's own cost
LEFT_OUT_REST_RATIO = 0.25
"""More of what a window leaves out is worth a word beside its largest part."""
RECORDING_QUANTILE = 0.25
"""Of the distances between events that follow each other, the one that comes nearest to what recording takes."""
RECORDING_LEAST_QUANTILE = 0.05
"""The fastest pairs, but for accidents: recording takes no less."""
RECORDING_MAX_NS = 3 * NS_PER_US
"""Recording an event takes 0.2 to 2 us; events that are farther apart did something."""
RECORDING_TOLD_RATIO = 0.01
"""Less of the window changes nothing."""
RECORDING_PAIRS = 20
"""Fewer pairs have no quartile worth the name."""

# Trust
BEFORE_WARN_RATIO = 0.1
OVERLAP_WARN_RATIO = 0.01
OVERLAP_FAIL_RATIO = 0.1
"""Programmatic dependent launches overlap by microseconds; a stream that does so for long is recorded wrongly."""
EARLY_WARN_RATIO = 0.01
EARLY_FAIL_RATIO = 0.1
SKEW_QUANTILE = 0.99
SKEWED_WARN_RATIO = 0.1
SKEWED_FAIL_RATIO = 0.5
"""Where most idle time lies within what the clocks disagree by, its causes may be each other's."""
CLOCK_TOLERANCE_NS = 20 * NS_PER_US
"""Profilers align the clocks of host and device to some microseconds: in real recordings waits showed up to 8 us."""
LATE_WARN_RATIO = 0.1
LATE_FAIL_RATIO = 0.5
QUEUED_MAX_NS = 10 * NS_PER_S
"""A device's queue holds a thousand launches: no program is always so far ahead."""
SHORTEST_NS = 100
"""The shortest activities of real recordings last 680 ns, or 0 in files of whole microseconds."""
SHORT_WARN_RATIO = 0.1
SHORT_FAIL_RATIO = 0.5
DEPENDENT_TAIL_NS = 10 * NS_PER_US
"""Dependent launches were seen to overlap by up to 4 us; a kernel of a few us may be all tail."""
IMPOSSIBLE_NS = NS_PER_MS
IMPOSSIBLE_WARN_RATIO = 0.01
IMPOSSIBLE_FAIL_RATIO = 0.2
FEW_ACTIVITIES = 5
FEW_OF = 100
FEW_WARN_RATIO = 0.5
"""Five of a hundred activities with half of the time may be right, and are worth a look."""
UNTRACED_WARN_RATIO = 0.05
UNTRACED_FAIL_RATIO = 0.7
MISSING_WARN_RATIO = 0.1
MISSING_FAIL_RATIO = 0.5
LOST_FAIL_RATIO = 0.1

# Advice
WORTH_RATIO = 0.02
"""Advice that can save less than this share of the window is noise."""
REPLAYED_RATIO = 0.9
"""Where graphs launch nearly everything already, they have nothing left to save."""
FEW_QUERIES = 16
"""Decoding has one query per key, times up to 16 heads that share it; attention of more is not held by a cache's bytes."""
OPTIMIZER_LAUNCHES = 50
"""A foreach optimizer makes a handful of launches per dtype, an unfused one several per parameter."""
SMALL_MESSAGE_BYTES = 4 << 20
"""A collective of less is bound by its latency, not by the links."""
SLOW_TRANSPORT_RATIO = 0.01
"""Networks between machines reach a tenth of the links within one: a hundredth is a fallback, such as sockets."""
SHARED_RATIO = 0.1
"""Advice that is about less of the time of advice above it saves nearly all of its own."""
CUSTOM_KERNEL_RATIO = 0.05
"""A kernel that holds less of the window, whatever it does, is not the first to profile."""
