"""Define the thresholds of the definitions in one place: starting values with physical reasons.

``docs/definitions.md`` shows how much the verdicts depend on them.
"""

from trace_analyzer.units import NS_PER_MS, NS_PER_S, NS_PER_US

# Idle causes
PAUSE_NS = 10 * NS_PER_MS
"""Least silence of all threads and devices that may be a pause of the recording; shorter ones are plain Python."""
PAUSE_SPAN_RATIO = 0.5
"""A silence longer than this share of the trace is a pause, whatever events surround it."""
CPU_OPERATOR_NS = NS_PER_MS
"""Least time of an operator that computes on the CPU or prepares a launch: mere dispatch takes microseconds."""
SLOW_LAUNCH_NS = NS_PER_MS
SLOW_LAUNCH_MEDIANS = 20
"""A launch call beyond both limits is abnormally slow: the driver loads a module first."""
HOST_WAIT_NS = 100_000
"""Least time of a host wait: an uncontended lock or a non-empty queue returns within microseconds."""
LAUNCH_LATENCY_QUANTILE = 0.99
LAUNCH_LATENCY_MAX_NS = 100 * NS_PER_US
"""Longest latency from an accepted launch to the kernel's start while the queue is empty."""
DEVICE_GAP_NS = 20 * NS_PER_US
"""Longest idle time between queued kernels without an explanation; 1 to 10 us are usual."""
EARLIER_WORK_NS = NS_PER_MS
"""Least wait behind work from before the recording that is reported as a cause of its own."""
EARLIER_LAUNCH_RATIO = 0.1
"""An activity that was launched within this first share of a gap waited for the rest of the gap."""
EARLIER_STREAM_RATIO = 0.1
EARLIER_DEVICE_RATIO = 0.01
"""With more recorded work before the gap than these shares of it, the recording began long before the gap."""
EARLIER_BLOCKED_RATIO = 0.9
"""Share of a gap that the CPU must spend waiting for the device: a CPU that waits all the time launches nothing."""
TIME_SLICES = 8
TIME_SLICE_SPREAD = 0.1
TIME_SLICE_DISTANCE_SPREAD = 0.25
"""So many idle gaps of one length (within the first share of the median), at one distance (within the second), are turns:
of three recordings
with such waits of their own, at most 22 % are within 0.1 of the median."""
UNRECORDED_NS = 200 * NS_PER_US
"""Longest time from the device's last work to the return of the call that waits for it: of 75 recordings with waits, 71
have none that takes longer."""
UNRECORDED_RATIO = 0.05
"""Least share of the window in unrecorded work, or of launches without their work, that is a doubt."""
STAGING_NS = 10 * NS_PER_MS
STAGING_NS_PER_BYTE = 1
"""Longest times to stage pageable memory in a driver's buffer: hosts copy several bytes per ns."""

# Run-ahead
BEHIND_EMPTY_RATIO = 0.5
BEHIND_BUSY_RATIO = 0.9
AHEAD_LEAD_CALLS = 10
AHEAD_EMPTY_RATIO = 0.1

DRAIN_QUEUED_WORK_NS = 100 * NS_PER_US
"""Least queued work for an underrun: with less, the CPU did not run ahead, and one slow launch empties the queue."""

# Bound of a kernel
TINY_KERNEL_NS = 3 * NS_PER_US
"""Below this duration, the fixed cost of starting and finishing a kernel dominates."""
SMALL_KERNEL_NS = 20 * NS_PER_US
"""Below this duration, fewer blocks than SMs leave SMs idle; longer kernels with few blocks may be persistent
kernels."""

# Roofline
LARGE_KERNEL_NS = 50 * NS_PER_US
"""Shorter matmuls may not fill the device, for individual reasons."""
EQUALLY_SLOW_KINDS = 4
EQUALLY_SLOW_RATIO = 0.75
EQUALLY_SLOW_SPREAD = 0.15
"""At least so many kinds of matmuls, all at most at this share of the roof and within this spread, suggest a common
cause."""

KNOWN_RATE_RATIO = 0.5
"""Least share of a group's time with known FLOP/s for a statement on the group."""

PRIORS_RATIO = 0.1
"""Below this share of matmul and convolution time with known FLOP and bytes, the bound rests on kernel names alone."""

HALF_ROOF_RATIO = 0.5
"""A kernel below this share of the roof takes twice its time at the roof: other limits cost as much time as the
roof."""
IMPOSSIBLE_RATE = 3
CACHE_RATE = 10
"""Work beyond so many times the device's highest peak, or so many times that of its memory's bandwidth, is not what the
kernel did: caches of large devices move bytes up to ten times as fast as their memory."""
BEYOND_ROOF_RATIO = 1.05
"""Arithmetic cannot exceed the device's peak; a higher rate means other work than the shapes suggest, or skipped
work."""
GOOD_ROOF_RATIO = 0.8
"""Libraries' best matmuls reach 70 to 90 % of a datasheet's peak; above this share, other kernels gain nothing. Devices
whose vendor publishes less have a share of their own (``attainable`` in the device catalogue)."""
INEFFICIENT_ROOF_RATIO = 0.25
"""Well-made kernels reach 50 to 90 % of a datasheet's roof; below this share, neither roof is the limit."""

TINY_OPERATOR_NS = 10 * NS_PER_US
"""Calling an operator of PyTorch takes 1 to 5 us, recording it 1 to 2 more: a shorter run is mostly the call."""
FIRST_CALL_NS = NS_PER_MS
"""Starting oneDNN or a pool of threads in an operator's first call takes 1 to 30 ms, being interrupted seldom as long."""
FIRST_CALL_RATIO = 10
"""Calls of an operator with the same shapes differ less, unless one starts something, or waits for cores."""
STALLED_FLOP_PER_NS = 0.1
"""The slowest core multiplies faster: a product of a matrix and a vector in FP32 does so from memory at 0.2 GB/s."""
STALLED_BYTES_PER_NS = 0.01
"""A pass of one core moves 1 to 10 bytes per ns, of the slowest function (`torch.polygamma`: 0.34 us an FP64 element) 0.05."""

# Copies
SMALL_COPY_BYTES = 64 << 10
"""At the 25 GB/s of PCIe 4.0 x16, copying this size takes 3 us, as long as starting the copy."""

# Work of a kernel
DEVICE_CLOCK_NS = 40
"""Resolution of device timestamps: device clocks tick every 1 to 40 ns."""
CLOCK_TICKS = 20
"""Least duration in ticks: a shorter one has an error above a tenth, one tick at each end."""
REPLAY_KERNELS = 4
"""Least length of a matched sequence of kernels: shorter ones recur by chance."""
REPLAY_NEIGHBOURS = 8
"""Number of equal kernels in a row that identify a program where the whole sequence of a graph was not recorded."""
REPLAY_CONFIDENCE = 0.5
"""Least share of a graph launch that a match must explain; below it, the match is another program or size."""

# Steps
OUTLIER_MEDIANS = 1.5
RECURRENCES = 2
"""Slow steps that come again so often, with usual ones between them, are part of the program."""
CUT_RATIO = 0.5
"""A first or last step with less than this share of the median step's activities was truncated by the recording."""
MIN_STEADY_STEPS = 2

STEP_REPEATS = 3
"""Least occurrences of an annotation that marks steps."""
STEP_COVERAGE = 0.8
"""Least share of launches within an annotation that marks steps; one with fewer covers only a part of a step."""
EDGE_WORK_RATIO = 0.01
"""Before its first real work and after its last, a device does less than this share of all its work."""
EDGE_IDLE_RATIO = 0.1
"""Least share of idle time at an edge of the window that is trimmed: less changes no verdict."""
LEFT_OUT_RATIO = 0.5
"""A window that leaves out more than this share covers the smaller part of the trace."""
TURN_LIKENESS = 0.75
"""Least similarity of launches in updates of one network: updates of two networks share less.

A log line or weight averaging in every other step changes less.
"""
PERIOD_LIKENESS = 0.9
"""Least similarity of a loop's iterations: they differ by an allocation or a log line, not by a tenth of their
launches."""

# Verdict
WAITING_WINS_RATIO = 0.6
"""Share at which waiting wins: waiting can be removed completely, kernel time only in part."""
WAITING_WINDOW_RATIO = 0.25
RUNNER_UP_RATIO = 0.8
"""A regime within a fifth of the first is as likely the limit."""
BALANCED_RATIO = 0.1
"""Where no resource alone saves this share of the window, the largest two limit it together."""
OTHER_REGIME_RATIO = 0.1
"""Least share of time outside the limit for which a fix is mentioned."""
COLD_START_GAP_NS = NS_PER_MS
SLOW_FIRST_MEDIANS = 4
COLD_START_RATIO = 0.5
INSUFFICIENT_KERNELS = 10
INSUFFICIENT_TIME_NS = NS_PER_MS
EARLIER_REPORTED_RATIO = 0.05
"""Least share of work from before the recording that is reported: less changes no figure of the window by much."""

# Confidence
FEW_KERNELS = 50
FEW_KERNELS_TIME_NS = 5 * NS_PER_MS
"""Below both counts, a recording need not be typical of its program: five times `INSUFFICIENT_KERNELS` and its time."""
HIGH_CONFIDENCE, MEDIUM_CONFIDENCE = 0.95, 0.8
"""Least share of the admissible worlds in which the regime holds."""
PEAK_ERROR = 0.15
"""Relative error of a known device's peaks: clocks under load, and bandwidths that copies attain, are so far below the
datasheet."""
ASSUMED_PEAK_ERROR = 0.5
"""The same where the device is taken from kernel names or from its likeness: models of one architecture differ so much."""
GOOD_COVERAGE = 0.9
POOR_COVERAGE = 0.5
UNKNOWN_DOUBT_RATIO = 0.2
MATMUL_DOUBT_RATIO = 0.25
"""Below this share of kernel time, unknown shapes of matmuls and convolutions cannot change the verdict."""

# Profiler overhead
LEFT_OUT_REST_RATIO = 0.05
"""Least share of the left-out time that is named in addition to its largest part."""
RECORDING_QUANTILE = 0.25
"""Quantile of distances between consecutive events that comes closest to the recording time of an event."""
RECORDING_LEAST_QUANTILE = 0.05
"""Lower bound of the recording time: the fastest pairs, without outliers."""
RECORDING_MAX_NS = 3 * NS_PER_US
"""Longest distance that recording can explain: it takes 0.2 to 2 us per event."""
RECORDING_LAUNCH_LEAST_RATIO = 0.6
RECORDING_LAUNCH_RATIO = 1.8
"""Cost of recording a launch over the lower quartile of launches' durations, least and most: 1.24 in the median on an H200."""
RECORDING_LAUNCH_MAX_NS = 13 * NS_PER_US
"""Longest known cost of recording a launch; launches that last longer wait for room in the queue."""
RECORDING_MOST_RATIO = 0.6
"""Largest share of a step that recording takes: steps of 77 ms that take 33 ms without it are known."""
RECORDING_ERROR = 1.5
"""Most that recording takes, of its estimate: in nine of ten programs that were timed without the profiler it took less."""
NOISE_STEPS = 0.1
"""Relative deviation of the CPU's time in several steps between processes of one program."""
NOISE_WINDOW = 0.2
"""The same of one window: all 12 recordings of one pass differ by no more."""
RECORDING_REPORTED_RATIO = 0.01
"""Least share of the window that is reported: less changes nothing."""
RECORDING_SHOWN_RATIO = 0.1
"""Least share of the window from which the first screen says how long a step takes without the profiler."""
RECORDING_PAIRS = 20
"""Least number of pairs for a usable quartile."""

# Trust
BEFORE_WARN_RATIO = 0.1
OVERLAP_WARN_RATIO = 0.01
OVERLAP_FAIL_RATIO = 0.1
"""Programmatic dependent launches overlap by microseconds; a longer overlap in a stream is a recording error."""
EARLY_WARN_RATIO = 0.01
EARLY_FAIL_RATIO = 0.1
SKEW_QUANTILE = 0.99
SKEWED_WARN_RATIO = 0.1
SKEWED_FAIL_RATIO = 0.5
"""Where most idle time is within the disagreement of the clocks, its causes may be swapped."""
CLOCK_TOLERANCE_NS = 20 * NS_PER_US
"""Profilers align host and device clocks to a few microseconds: real recordings show waits of up to 8 us."""
LATE_WARN_RATIO = 0.1
LATE_FAIL_RATIO = 0.5
QUEUED_MAX_NS = 10 * NS_PER_S
"""A device's queue holds about a thousand launches: no program runs so far ahead all the time."""
SHORTEST_NS = 100
"""Shortest plausible activity: real recordings have 680 ns, or 0 in files with whole microseconds."""
SHORT_WARN_RATIO = 0.1
SHORT_FAIL_RATIO = 0.5
DEPENDENT_TAIL_NS = 10 * NS_PER_US
"""Longest overlap of dependent launches: up to 4 us in real recordings; a kernel of a few us may overlap entirely."""
IMPOSSIBLE_NS = NS_PER_MS
IMPOSSIBLE_WARN_RATIO = 0.01
IMPOSSIBLE_FAIL_RATIO = 0.2
FEW_ACTIVITIES = 5
FEW_OF = 100
FEW_WARN_RATIO = 0.5
"""Share at which few long activities cause a warning: five of a hundred with half of the time may be right."""
UNTRACED_WARN_RATIO = 0.05
UNTRACED_FAIL_RATIO = 0.7
SERIALIZED_RATIO = 0.01
"""Least exposed time of collectives on the stream of other kernels, of the time of those, that is worth a word."""
MISSING_WARN_RATIO = UNRECORDED_RATIO
MISSING_FAIL_RATIO = 0.5
LOST_FAIL_RATIO = 0.1

# Advice
WORTH_RATIO = 0.02
"""Least share of the window that advice must save."""
REPLAYED_RATIO = 0.9
"""Where graphs launch this share of the work already, more graphs save nothing."""
UNNAMED_RATIO = 0.3
"""Share of idle time without a recorded event from which on stacks are asked for."""
FEW_QUERIES = 16
"""Most queries of decoding: one per key, times up to 16 heads that share it.

With more, a cache's bytes are not the limit.
"""
OPTIMIZER_LAUNCHES = 50
"""Least launches of an unfused optimizer: it makes several per parameter, a foreach optimizer a handful per dtype."""
SMALL_MESSAGE_BYTES = 4 << 20
"""A smaller collective is limited by latency, not by bandwidth."""
SLOW_TRANSPORT_RATIO = 0.01
"""Networks between machines reach a tenth of the bandwidth of links within one; a hundredth means a fallback, such as
sockets."""
SHARED_RATIO = 0.1
"""Advice that shares less than this of its time with earlier advice saves nearly all of its own time."""
CUSTOM_KERNEL_RATIO = 0.05
"""Least share of the window of a kernel that is proposed for profiling first."""
