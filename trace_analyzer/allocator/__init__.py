"""Where device memory goes: snapshots of PyTorch's allocator and memory events of traces become tables and answers."""
