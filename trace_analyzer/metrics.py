"""Name the metrics that a failed check of the trace suppresses."""

BUSY_RATIO = "busy_ratio"
PARTITION = "partition"
"""Busy parts and idle causes of the device: the verdict's input."""
CAUSES_OF_IDLE = "idle_causes"
"""Causes of idle time, and its attribution to operators and modules."""
RUN_AHEAD = "run_ahead"
"""Launch lead, queue depth and queued work."""
KERNEL_TIMES = ("buckets", "groups", "bounds", "fusions", "tensor_cores")
"""Metrics that sum durations of kernels."""
UTILIZATION = ("mfu", "hfu")
"""FLOP/s utilization of the device and of its steps."""
MOVEMENTS = ("communication", "copies")
"""Exposed time and rates."""
ALL = (BUSY_RATIO, PARTITION, CAUSES_OF_IDLE, RUN_AHEAD, *KERNEL_TIMES, *UTILIZATION, *MOVEMENTS)
