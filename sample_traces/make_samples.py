"""Write the synthetic sample traces: workloads whose limits are known by construction.

Run it from anywhere: ``python sample_traces/make_samples.py [FOLDER]``. Kernel times follow from shapes and the
modelled A100 (80 GB, SXM4): 80 % of its tensor cores' peak or 85 % of its memory bandwidth, whichever takes longer,
plus a fixed cost per kernel. Names are those that PyTorch, cuBLAS, cuDNN, flash attention and NCCL give to their
kernels and operators on that device.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import ceil, prod
from pathlib import Path

from simulator import Costs, CudaEvent, Kernel, Scalar, Simulation, Stream, Tensor, Thread

BF16, FP32 = "c10::BFloat16", "float"
FLOP_PER_S = {BF16: 0.8 * 312e12, FP32: 0.8 * 19.5e12}
BYTES_PER_S = 0.85 * 2.039e12
NVLINK_BYTES_PER_S = 200e9
RING_BYTES_PER_S = 90e9
KERNEL_COST_NS = 1_500

GEMM = {
    BF16: "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    FP32: "ampere_sgemm_32x32_sliced1x4_tn",
}
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_"
    "tilesize128x128x64_stage3_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, "
    "false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, "
    "false, true, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)"
)
FLASH_BACKWARD = FLASH.replace("flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel").replace(
    "Flash_fwd", "Flash_bwd"
)
LAYER_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, "
    "c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"
)
LAYER_NORM_BACKWARD = (
    "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>("
    "c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16 const*, "
    "c10::BFloat16*, int)"
)
_SUM = (
    "at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, "
    "float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4, 4>"
)
REDUCE_SUM = f"void at::native::reduce_kernel<128, 4, {_SUM} >({_SUM})"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_GEMV_PARAMETERS = (
    "cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, "
    "cublasGemvTensorStridedBatched<__nv_bfloat16 const>, "
    "cublasGemvTensorStridedBatched<__nv_bfloat16>, float>"
)
GEMV = (
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, "
    f"__nv_bfloat16, float, false, true, true, false, 7, false, {_GEMV_PARAMETERS} >({_GEMV_PARAMETERS})"
)
RELU = (
    "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, "
    "c10::Scalar, at::native::detail::ClampLimits)::{lambda()#1}::operator()() const::{lambda(float)#1}"
)
RELU_BACKWARD = (
    "at::native::(anonymous namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)"
    "::{lambda(float, float)#1}"
)
GELU = "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda(float)#1}"
GELU_BACKWARD = (
    "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda(float, float)#1}"
)
ADD = "at::native::CUDAFunctor_add<c10::BFloat16>"
ADD_FLOAT = "at::native::CUDAFunctor_add<float>"
MULTIPLY = (
    "at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >"
)
TANH = "at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}"
POWER = (
    "at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<c10::BFloat16, c10::BFloat16>("
    "at::TensorIteratorBase&, c10::BFloat16)::{lambda(c10::BFloat16)#2}"
)


def elementwise(functor: str) -> str:
    """Return the full name of PyTorch's vectorized pointwise kernel for a functor."""
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, 2ul> >"
        f"(int, {functor}, std::array<char*, 2ul>)"
    )


def kernel_ns(flop: float, size: float, dtype: str = BF16) -> int:
    """Return the time of a kernel on the modelled device: its roof plus a fixed cost."""
    return KERNEL_COST_NS + round(1e9 * max(flop / FLOP_PER_S[dtype], size / BYTES_PER_S))


class Eager:
    """Simulate operators of eager PyTorch on one thread: their host cost and their kernels."""

    def __init__(self, simulation: Simulation, thread: Thread, stream: Stream, dtype: str = BF16) -> None:
        self.simulation = simulation
        self.thread = thread
        self.stream = stream
        self.dtype = dtype
        self.live: list[int] = []
        self.gradients: list[int] = []

    def tensor(self, *shape: int) -> Tensor:
        """Return a tensor of the workload's dtype."""
        return Tensor(shape, self.dtype)

    def output(self, *shape: int) -> None:
        """Allocate the result of an operator."""
        self.live.append(self.thread.allocate(self.tensor(*shape).bytes))

    def release(self) -> None:
        """Free the results of all operators so far, except gradients of parameters."""
        while self.live:
            self.thread.release(self.live.pop())

    @contextmanager
    def module(self, name: str, number: int, forward: str = "") -> Iterator[None]:
        """Simulate the Python frames of a module call if frames are recorded; else only their time."""
        with (
            self.thread.frame(f"nn.Module: {name}_{number}", before_ns=2_000),
            self.thread.frame("torch/nn/modules/module.py(1779): _call_impl", before_ns=1_500),
            self.thread.frame(forward or f"torch/nn/modules/{name.lower()}.py(130): forward", before_ns=1_500),
        ):
            yield

    def gemm(self, m: int, k: int, n: int) -> None:
        """Launch the kernel of a matmul [m, k] x [k, n]."""
        self.output(m, n)
        size = self.tensor(m, k).bytes + self.tensor(k, n).bytes + self.tensor(m, n).bytes
        tile, threads = ((128, 256), 256) if self.dtype == BF16 else ((32, 32), 128)
        grid = (ceil(m / tile[0]), ceil(n / tile[1]), 1)
        duration_ns = 2_500 + kernel_ns(2.0 * m * k * n, size, self.dtype)
        kernel = Kernel(GEMM[self.dtype], duration_ns, grid, (threads, 1, 1), 230, 73_728)
        self.thread.launch(kernel, self.stream)

    def mm(self, m: int, k: int, n: int) -> None:
        """Simulate ``aten::mm``."""
        with self.thread.op("aten::mm", [self.tensor(m, k), self.tensor(k, n)], before_ns=4_000):
            self.gemm(m, k, n)

    def linear(self, m: int, k: int, n: int) -> int:
        """Simulate ``nn.Linear`` on [m, k]; returns the autograd sequence number."""
        sequence = self.simulation.next_sequence()
        weight, bias = self.tensor(n, k), self.tensor(n)
        with self.thread.op("aten::linear", [self.tensor(m, k), weight, bias], before_ns=1_500):
            with self.thread.op("aten::t", [weight], before_ns=1_200):
                pass
            inputs = [bias, self.tensor(m, k), self.tensor(k, n), Scalar("1"), Scalar("1")]
            with self.thread.op("aten::addmm", inputs, before_ns=6_000, sequence=sequence):
                self.gemm(m, k, n)
        return sequence

    def linear_backward(self, sequence: int, m: int, k: int, n: int) -> None:
        """Simulate the two matmuls and the bias sum of a linear layer's backward pass."""
        with self.thread.backward_op("AddmmBackward0", sequence, [self.tensor(m, n)]):
            self.mm(m, n, k)
            self.mm(n, m, k)
            self.gradients.append(self.live.pop())
            summed = [self.tensor(m, n), Scalar("[0]", "ScalarList"), Scalar("True")]
            with self.thread.op("aten::sum", summed, before_ns=4_500):
                self.launch_pointwise(REDUCE_SUM, self.tensor(m, n).bytes, n)

    def launch_pointwise(self, name: str, size: int, elements: int) -> None:
        """Launch a kernel that moves this many bytes and computes next to nothing."""
        grid = (max(1, ceil(elements / 512)), 1, 1)
        self.thread.launch(Kernel(name, kernel_ns(0, size), grid, (128, 1, 1)), self.stream)

    def pointwise(self, operator: str, functor: str, *shape: int, inputs: int = 1, sequence: int | None = None) -> None:
        """Simulate a pointwise operator: reads its inputs, writes one output."""
        tensor = self.tensor(*shape)
        with self.thread.op(operator, [tensor] * inputs, before_ns=3_500, sequence=sequence):
            if not operator.endswith("_"):
                self.output(*shape)
            self.launch_pointwise(elementwise(functor), (inputs + 1) * tensor.bytes, prod(shape))

    def pointwise_backward(self, sequence: int, node: str, operator: str, functor: str, *shape: int) -> None:
        """Simulate the backward node of a pointwise operator."""
        with self.thread.backward_op(node, sequence, [self.tensor(*shape)]):
            self.pointwise(operator, functor, *shape, inputs=2)

    def layer_norm(self, rows: int, columns: int) -> int:
        """Simulate ``aten::layer_norm`` over the last dimension; returns the autograd sequence number."""
        sequence = self.simulation.next_sequence()
        x, weight = self.tensor(rows, columns), self.tensor(columns)
        inputs = [x, Scalar(f"[{columns}]", "ScalarList"), weight, weight, Scalar("1e-05")]
        with (
            self.thread.op("aten::layer_norm", inputs, before_ns=1_500),
            self.thread.op("aten::native_layer_norm", inputs, before_ns=5_000, sequence=sequence),
        ):
            self.output(rows, columns)
            kernel = Kernel(LAYER_NORM, kernel_ns(0, 2 * x.bytes), (rows, 1, 1), (32, 4, 1), 40)
            self.thread.launch(kernel, self.stream)
        return sequence

    def layer_norm_backward(self, sequence: int, rows: int, columns: int) -> None:
        """Simulate the gradient of a layer norm's input."""
        x, weight, statistic = self.tensor(rows, columns), self.tensor(columns), Tensor((rows, 1), FP32)
        shape, wanted = Scalar(f"[{columns}]", "ScalarList"), Scalar("[True, False, False]", "ScalarList")
        inputs = [x, x, shape, statistic, statistic, weight, weight, wanted]
        with (
            self.thread.backward_op("NativeLayerNormBackward0", sequence, [x]),
            self.thread.op("aten::native_layer_norm_backward", inputs, before_ns=6_000),
        ):
            self.output(rows, columns)
            kernel = Kernel(LAYER_NORM_BACKWARD, kernel_ns(0, 3 * x.bytes), (rows, 1, 1), (128, 1, 1))
            self.thread.launch(kernel, self.stream)

    def attention(self, batch: int, heads: int, tokens: int, width: int, sequence: int | None = None) -> None:
        """Simulate ``scaled_dot_product_attention``, causal, by flash attention."""
        head = self.tensor(batch, heads, tokens, width)
        flop = 4.0 * batch * heads * tokens * tokens * width / 2
        none, dropout, causal = Scalar("", ""), Scalar("0."), Scalar("True")
        row, longest = self.tensor(batch, tokens, heads, width), Scalar(str(tokens))
        outer = [head, head, head, none, dropout, causal]
        dispatched = [head, head, head, dropout, causal, Scalar("False")]
        inner = [row, row, row, none, none, longest, longest, dropout, causal, Scalar("False")]
        flash = "aten::_scaled_dot_product_flash_attention"
        with (
            self.thread.op("aten::scaled_dot_product_attention", outer, before_ns=3_000),
            self.thread.op(flash, dispatched, before_ns=4_000, sequence=sequence),
            self.thread.op("aten::_flash_attention_forward", inner, before_ns=4_000),
        ):
            self.output(batch, heads, tokens, width)
            duration_ns = round(1.3 * kernel_ns(flop, 4 * head.bytes))
            grid = (ceil(tokens / 128), batch, heads)
            self.thread.launch(Kernel(FLASH, duration_ns, grid, (128, 1, 1), 255, 65_536), self.stream)

    def attention_backward(self, sequence: int, batch: int, heads: int, tokens: int, width: int) -> None:
        """Simulate the backward node of causal flash attention, which computes 2.5 times the FLOP of the forward pass."""
        head = self.tensor(batch, heads, tokens, width)
        flop = 10.0 * batch * heads * tokens * tokens * width / 2
        none, longest, sums = Scalar("", ""), Scalar(str(tokens)), Tensor((batch, heads, tokens), FP32)
        rest = [sums, none, none, longest, longest, Scalar("0."), Scalar("True")]
        outer, inner = [*[head] * 5, *rest], [*[self.tensor(batch, tokens, heads, width)] * 5, *rest]
        with (
            self.thread.backward_op("ScaledDotProductFlashAttentionBackward0", sequence, [head]),
            self.thread.op("aten::_scaled_dot_product_flash_attention_backward", outer, before_ns=4_000),
            self.thread.op("aten::_flash_attention_backward", inner, before_ns=4_000),
        ):
            for _ in range(3):
                self.output(batch, heads, tokens, width)
            duration_ns = round(1.4 * kernel_ns(flop, 8 * head.bytes))
            grid = (ceil(tokens / 128), batch, heads)
            self.thread.launch(Kernel(FLASH_BACKWARD, duration_ns, grid, (256, 1, 1), 255, 147_456), self.stream)

    def convolution(self, batch: int, channels: int, filters: int, size: int) -> None:
        """Simulate a 3 x 3 convolution that keeps the image size."""
        image, weight = self.tensor(batch, channels, size, size), self.tensor(filters, channels, 3, 3)
        ones = Scalar("[1, 1]", "ScalarList")
        inputs = [image, weight, Scalar(""), ones, ones, ones, Scalar("1")]
        with (
            self.thread.op("aten::conv2d", inputs),
            self.thread.op("aten::convolution", inputs),
            self.thread.op("aten::_convolution", inputs),
            self.thread.op("aten::cudnn_convolution", [image, weight, ones, ones, ones], before_ns=9_000),
        ):
            flop = 2.0 * batch * channels * filters * 9 * size * size
            moved = image.bytes + weight.bytes + self.tensor(batch, filters, size, size).bytes
            blocks = ceil(batch * size * size / 128) * ceil(filters / 128)
            duration_ns = round(1.3 * kernel_ns(flop, moved))
            kernel = Kernel(CONVOLUTION, duration_ns, (blocks, 1, 1), (128, 1, 1), 234, 98_304)
            self.thread.launch(kernel, self.stream)

    @contextmanager
    def copy(self, tensor: Tensor) -> Iterator[None]:
        """Simulate ``tensor.to(device)`` around the copy that it makes."""
        with (
            self.thread.op("aten::to", [tensor]),
            self.thread.op("aten::_to_copy", [tensor]),
            self.thread.op("aten::copy_", [tensor]),
        ):
            yield

    def sgd(self, parameters: Sequence[Tensor]) -> None:
        """Simulate ``SGD.step`` with ``foreach=False``: one operator per parameter."""
        with (
            self.thread.annotation("Optimizer.step#SGD.step"),
            self.thread.frame("torch/optim/sgd.py(100): step", before_ns=25_000),
        ):
            for parameter in parameters:
                with self.thread.frame("torch/optim/sgd.py(351): _single_tensor_sgd", before_ns=2_500):
                    functor = ADD_FLOAT if self.dtype == FP32 else ADD
                    self.pointwise("aten::add_", functor, *parameter.shape, inputs=2)

    def on(self, thread: Thread) -> "Eager":
        """Return the same device work launched by another thread, which can free what this one allocated."""
        other = Eager(self.simulation, thread, self.stream, self.dtype)
        other.live = self.live
        return other


def overhead_launch() -> Simulation:
    """Return a tiny FP32 MLP with recorded Python frames, in which every kernel waits for its launch."""
    header = {"record_shapes": 1, "with_stack": 1}
    simulation = Simulation(python_frames=True, header=header, costs=Costs(host_factor=2.0), seed=1)
    main, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
    torch = Eager(simulation, main, simulation.stream(), FP32)
    batch, width, layers = 32, 256, 5
    parameters = [torch.tensor(width, width), torch.tensor(width)] * layers
    with main.frame("train.py(58): main"):
        for number in range(7):
            with main.step(number), main.frame("train.py(31): train_step", before_ns=8_000):
                if number == 0:
                    main.spend(3_000_000)
                sequences = []
                with torch.module("Sequential", 0):
                    for layer in range(layers):
                        with torch.module("Linear", layer):
                            linear = torch.linear(batch, width, width)
                        with torch.module("ReLU", layer):
                            relu = simulation.next_sequence()
                            torch.pointwise("aten::relu", RELU, batch, width, sequence=relu)
                        sequences.append((linear, relu))
                with main.frame("torch/_tensor.py(592): backward", before_ns=9_000), main.hand_over(autograd):
                    back = torch.on(autograd)
                    for linear, relu in reversed(sequences):
                        back.pointwise_backward(
                            relu, "ReluBackward0", "aten::threshold_backward", RELU_BACKWARD, batch, width
                        )
                        back.linear_backward(linear, batch, width, width)
                torch.sgd(parameters)
    main.synchronize_device()
    return simulation


def overhead_data_loading() -> Simulation:
    """Return a convolutional network that waits for each next batch."""
    simulation = Simulation(header={"record_shapes": 1}, seed=2)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream())
    batch, filters, size = 64, 128, 56
    for number in range(7):
        with main.step(number):
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            with main.annotation(name, cause="data-loading"):
                main.spend(24_000_000 if number == 0 else 12_000_000)
            main.spend(20_000)
            image = torch.tensor(batch, 3, size, size)
            with torch.copy(image):
                main.memcpy("HtoD", image.bytes, torch.stream)
            for channels in (3, *[filters] * 14):
                torch.convolution(batch, channels, filters, size)
                torch.pointwise("aten::relu_", RELU, batch, filters, size, size)
            main.spend(15_000)
    main.synchronize_device()
    return simulation


def overhead_synchronization() -> Simulation:
    """Return a loop that reads a number from the device after every few operators, and then computes on the host."""
    simulation = Simulation(header={"record_shapes": 1}, seed=3)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream())
    rows, width = 4096, 1536
    for number in range(7):
        with main.step(number):
            main.spend(2_000_000 if number == 0 else 30_000)
            for _ in range(8):
                for _ in range(4):
                    torch.mm(rows, width, width)
                    torch.pointwise("aten::gelu", GELU, rows, width)
                    torch.layer_norm(rows, width)
                with (
                    main.op("aten::item", [Tensor((), FP32)], before_ns=1_500),
                    main.op("aten::_local_scalar_dense", [Tensor((), FP32)], before_ns=2_500),
                ):
                    main.memcpy("DtoH", 4, torch.stream)
                    main.synchronize(torch.stream)
                main.spend(350_000)
    main.synchronize_device()
    return simulation


def memory_bandwidth() -> Simulation:
    """Return an unfused GELU and layer norms, forward and backward, with the CPU ahead."""
    simulation = Simulation(header={"record_shapes": 1}, seed=4)
    main, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
    torch = Eager(simulation, main, simulation.stream())
    rows, width = 8192, 4096
    for number in range(7):
        with main.step(number):
            main.spend(2_000_000 if number == 0 else 60_000)
            nodes: list[tuple[int, Callable[[Eager, int], None]]] = []
            for _ in range(3):
                for operator, functor, inputs in (
                    ("aten::pow", POWER, 1),
                    ("aten::mul", MULTIPLY, 2),
                    ("aten::add", ADD, 2),
                    ("aten::tanh", TANH, 1),
                    ("aten::add", ADD, 2),
                    ("aten::mul", MULTIPLY, 2),
                ):
                    sequence = simulation.next_sequence()
                    torch.pointwise(operator, functor, rows, width, inputs=inputs, sequence=sequence)
                    if operator == "aten::tanh":
                        nodes.append((sequence, _tanh_backward(rows, width)))
                    elif operator == "aten::mul":
                        nodes.append((sequence, _mul_backward(rows, width)))
                nodes.append((torch.layer_norm(rows, width), _layer_norm_backward(rows, width)))
            with main.hand_over(autograd):
                for sequence, backward in reversed(nodes):
                    backward(torch.on(autograd), sequence)
    main.synchronize_device()
    return simulation


def _tanh_backward(rows: int, width: int) -> Callable[[Eager, int], None]:
    return lambda torch, sequence: torch.pointwise_backward(
        sequence, "TanhBackward0", "aten::tanh_backward", TANH, rows, width
    )


def _mul_backward(rows: int, width: int) -> Callable[[Eager, int], None]:
    return lambda torch, sequence: torch.pointwise_backward(
        sequence, "MulBackward0", "aten::mul", MULTIPLY, rows, width
    )


def _layer_norm_backward(rows: int, width: int) -> Callable[[Eager, int], None]:
    return lambda torch, sequence: torch.layer_norm_backward(sequence, rows, width)


def compute() -> Simulation:
    """Return the forward pass of a bf16 transformer with wide layers and flash attention, with the CPU far ahead."""
    simulation = Simulation(header={"record_shapes": 1}, seed=5)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream())
    batch, tokens, width, heads = 2, 2048, 4096, 32
    rows = batch * tokens
    for number in range(7):
        with main.step(number):
            main.spend(2_000_000 if number == 0 else 80_000)
            for _ in range(3):
                torch.layer_norm(rows, width)
                torch.linear(rows, width, 3 * width)
                torch.attention(batch, heads, tokens, width // heads)
                torch.linear(rows, width, width)
                torch.pointwise("aten::add", ADD, rows, width, inputs=2)
                torch.layer_norm(rows, width)
                torch.linear(rows, width, 4 * width)
                torch.pointwise("aten::gelu", GELU, rows, 4 * width)
                torch.linear(rows, 4 * width, width)
                torch.pointwise("aten::add", ADD, rows, width, inputs=2)
    main.synchronize_device()
    return simulation


def communication_collectives() -> Simulation:
    """Return rank 0 of tensor parallelism across two nodes, with an exposed all-reduce after each layer."""
    ranks = 16
    simulation = Simulation(header={"record_shapes": 1, "distributedInfo": _distributed(ranks)}, seed=6)
    main = simulation.thread()
    torch, communication = Eager(simulation, main, simulation.stream()), simulation.stream(number=20)
    rows, width = 4096, 4096
    for number in range(7):
        with main.step(number):
            main.spend(2_000_000 if number == 0 else 50_000)
            for _ in range(6):
                torch.linear(rows, width, width // 2)
                torch.pointwise("aten::gelu", GELU, rows, width // 2)
                torch.linear(rows, width // 2, width)
                main.wait_event(torch.stream, _all_reduce(torch, communication, torch.tensor(rows, width), ranks))
    main.synchronize_device()
    return simulation


def _distributed(ranks: int) -> dict[str, object]:
    """Return what the profiler records of rank 0 of a job in one process group."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": ranks}
    return {
        "backend": "nccl",
        "rank": 0,
        "world_size": ranks,
        "pg_count": 1,
        "pg_config": [{**group, "ranks": list(range(ranks))}],
        "nccl_version": "2.21.5",
    }


def _all_reduce(torch: Eager, communication: Stream, tensor: Tensor, ranks: int) -> CudaEvent:
    """Simulate an all-reduce on its own stream; returns its end, for the compute stream to wait for."""
    main, elements = torch.thread, prod(tensor.shape)
    collective = {
        "Collective name": "allreduce",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "BFloat16",
        "Group size": ranks,
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(ranks))),
    }
    ring_ns = round(1e9 * 2 * (ranks - 1) / ranks * tensor.bytes / RING_BYTES_PER_S)
    kernel = Kernel(ALL_REDUCE, 15_000 + ring_ns, (24, 1, 1), (512, 1, 1), 96, args=collective)
    with (
        main.op("c10d::allreduce_", [tensor], before_ns=8_000),
        main.op("record_param_comms", [tensor], before_ns=5_000, args=collective),
        main.annotation("nccl:all_reduce"),
    ):
        main.wait_event(communication, main.record_event(torch.stream))
        main.launch(kernel, communication)
        return main.record_event(communication)


def communication_dependency() -> Simulation:
    """Return a model split over two devices without microbatches: each device waits for the other's half."""
    simulation = Simulation(devices=2, header={"record_shapes": 1}, seed=7)
    main = simulation.thread()
    halves = [Eager(simulation, main, simulation.stream(device)) for device in (0, 1)]
    rows, width = 4096, 4096
    for number in range(7):
        with main.step(number):
            main.spend(2_000_000 if number == 0 else 60_000)
            for torch in halves:
                for _ in range(5):
                    torch.linear(rows, width, width)
                    torch.pointwise("aten::gelu", GELU, rows, width)
                _hand_to_peer(torch, halves[1 - torch.stream.device], torch.tensor(rows, width))
    main.synchronize_device(1)
    main.synchronize_device(0)
    return simulation


def _hand_to_peer(source: Eager, target: Eager, tensor: Tensor) -> None:
    """Simulate ``x.to("cuda:1")``: a peer copy after the target's work so far, for which the target waits."""
    main = source.thread
    with source.copy(tensor):
        main.wait_event(source.stream, main.record_event(target.stream))
        main.memcpy("PtoP", tensor.bytes, source.stream, gb_per_s=NVLINK_BYTES_PER_S / 1e9)
        copied: CudaEvent = main.record_event(source.stream)
        main.wait_event(target.stream, copied)


def memory_bandwidth_cuda_graph() -> Simulation:
    """Return decoding with a captured CUDA graph at batch size 1: weights are streamed, with one launch per token."""
    simulation = Simulation(header={"record_shapes": 1}, costs=Costs(graph_call_ns=180_000), seed=8)
    main, stream = simulation.thread(), simulation.stream()
    width = 4096
    shapes = [(3 * width, width), (width, width), (8 * width, width), (width, 4 * width)]
    row = Tensor((1, width))
    norm = Kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", 2_600, (1, 1, 1), (1024, 1, 1))
    gate = Kernel("triton_poi_fused_mul_silu_1", 2_200, (32, 1, 1), (256, 1, 1))
    layer = []
    for rows, columns in shapes:
        gemv = Kernel(GEMV, kernel_ns(0, Tensor((rows, columns)).bytes), (rows // 4, 1, 1), (128, 1, 1), 48)
        layer += [norm if rows > width else gate, gemv]
    for number in range(7):
        with main.step(number):
            main.spend(1_500_000 if number == 0 else 120_000)
            with main.op("aten::copy_", [row, row]):
                main.memcpy("DtoD", row.bytes, stream, gb_per_s=800)
            main.launch_graph(layer * 12, stream)
    main.synchronize_device()
    return simulation


def training() -> Simulation:
    """Return data-parallel training of a bf16 transformer, recorded in full; its head is FP32, its loss has a graph break."""
    ranks, layers, rows, width, classes = 8, 3, 8192, 2048, 1024
    batch, tokens, heads = 8, 1024, 16
    header = {"record_shapes": 1, "with_stack": 1, "profile_memory": 1, "distributedInfo": _distributed(ranks)}
    simulation = Simulation(python_frames=True, memory=True, header=header, seed=9)
    main, autograd = simulation.thread(), simulation.thread("pt_autograd_0")
    communication = simulation.stream(number=20)
    torch = Eager(simulation, main, simulation.stream())
    layer = [torch.tensor(n * width, m * width) for n, m in ((3, 1), (1, 1), (4, 1), (1, 4))]
    parameters = layer * layers
    simulation.blocks[0] = 2 * sum(parameter.bytes for parameter in parameters)
    for number in range(7):
        with main.step(number), main.frame("train.py(31): train_step", before_ns=8_000):
            with main.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", cause="data-loading"):
                main.spend(3_000_000 if number == 0 else 150_000)
            passes: list[tuple[Eager, Callable[[Eager], None]]] = []
            with torch.module("GPT", 0, "model.py(52): forward"):
                for i in range(layers):
                    block = Eager(simulation, main, torch.stream)
                    with block.module("Block", i, "model.py(38): forward"):
                        passes.append((block, _block(block, i, batch, heads, tokens, width // heads)))
                head = Eager(simulation, main, torch.stream, FP32)
                with head.module("Linear", 4 * layers):
                    sequence = head.linear(rows, width, classes)
                passes.append((head, lambda back, node=sequence: back.linear_backward(node, rows, width, classes)))
            _compiled_loss(main, torch.stream, Tensor((rows, classes), FP32).bytes)
            events, gradients = [], []
            with main.frame("torch/_tensor.py(592): backward", before_ns=9_000), main.hand_over(autograd):
                for forward, backward in reversed(passes):
                    back = forward.on(autograd)
                    backward(back)
                    back.release()
                    gradients += back.gradients
                    if forward is not head:
                        bucket = torch.tensor(sum(prod(parameter.shape) for parameter in layer))
                        node = "torch::autograd::AccumulateGrad"
                        with autograd.op(f"autograd::engine::evaluate_function: {node}"), autograd.op(node):
                            events.append(_all_reduce(back, communication, bucket, ranks))
            for event in events:
                main.wait_event(torch.stream, event)
            torch.sgd(parameters)
            for address in gradients:
                main.release(address)
    main.synchronize_device()
    return simulation


def _block(torch: Eager, number: int, batch: int, heads: int, tokens: int, head: int) -> Callable[[Eager], None]:
    """Simulate the forward pass of a transformer block; returns its backward pass."""
    rows, width = batch * tokens, heads * head
    nodes: list[Callable[[Eager], None]] = []

    def linear(index: int, inputs: int, outputs: int) -> None:
        with torch.module("Linear", 4 * number + index):
            sequence = torch.linear(rows, inputs, outputs)
        nodes.append(lambda back: back.linear_backward(sequence, rows, inputs, outputs))

    def norm(index: int) -> None:
        with torch.module("LayerNorm", 2 * number + index):
            sequence = torch.layer_norm(rows, width)
        nodes.append(lambda back: back.layer_norm_backward(sequence, rows, width))

    norm(0)
    with torch.module("Attention", number, "model.py(12): forward"):
        linear(0, width, 3 * width)
        attended = torch.simulation.next_sequence()
        torch.attention(batch, heads, tokens, head, attended)
        nodes.append(lambda back: back.attention_backward(attended, batch, heads, tokens, head))
        linear(1, width, width)
    torch.pointwise("aten::add", ADD, rows, width, inputs=2)
    norm(1)
    with torch.module("MLP", number, "model.py(27): forward"):
        linear(2, width, 4 * width)
        with torch.module("GELU", number):
            gelu = torch.simulation.next_sequence()
            torch.pointwise("aten::gelu", GELU, rows, 4 * width, sequence=gelu)
        nodes.append(
            lambda back: back.pointwise_backward(
                gelu, "GeluBackward0", "aten::gelu_backward", GELU_BACKWARD, rows, 4 * width
            )
        )
        linear(3, 4 * width, width)
    torch.pointwise("aten::add", ADD, rows, width, inputs=2)

    def backward(back: Eager) -> None:
        for node in reversed(nodes):
            node(back)

    return backward


def _compiled_loss(thread: Thread, stream: Stream, size: int) -> None:
    """Simulate a loss compiled by ``torch.compile``, in two regions: a graph break parts them."""
    kernels = ("triton_per_fused__log_softmax_0", "triton_per_fused_mean_nll_loss_neg_1")
    functions = ("train.py(18): loss", "train.py(18): torch_dynamo_resume_in_loss_at_21")
    with ExitStack() as regions:
        for number, (function, kernel) in enumerate(zip(functions, kernels, strict=True)):
            regions.enter_context(thread.op(f"Torch-Compiled Region: {number}/0", before_ns=20_000))
            regions.enter_context(thread.frame(function))
            with thread.op(kernel, before_ns=3_000):
                thread.launch(Kernel(kernel, kernel_ns(0, size), (1024, 1, 1), (256, 1, 1)), stream)


SAMPLES: Mapping[str, Callable[[], Simulation]] = {
    "synthetic_overhead_launch": overhead_launch,
    "synthetic_overhead_data-loading": overhead_data_loading,
    "synthetic_overhead_synchronization": overhead_synchronization,
    "synthetic_memory-bandwidth": memory_bandwidth,
    "synthetic_memory-bandwidth_cuda-graph": memory_bandwidth_cuda_graph,
    "synthetic_compute": compute,
    "synthetic_communication_collectives": communication_collectives,
    "synthetic_communication_dependency": communication_dependency,
    "synthetic_training": training,
}


def main(folder: Path) -> None:
    """Write every sample into the folder."""
    for name, simulate in SAMPLES.items():
        simulate().write(folder / f"{name}.json.gz")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
