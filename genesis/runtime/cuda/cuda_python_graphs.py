"""CUDA graphs through cuda-python: kernels, copies and other libraries' work as nodes of one executable graph."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from genesis.runtime.cuda.c_functions import CFunction
from genesis.runtime.cuda.cuda_python_launches import PackedLaunch
from genesis.runtime.cuda.cuda_python_streams import StreamCalls
from genesis.runtime.cuda.driver import Call, CapturedWork, DeviceCopy, GraphNode, StreamHandle

if TYPE_CHECKING:
    from cuda.bindings import driver as bindings


@dataclass(slots=True, eq=False)
class CudaGraph:
    """An executable graph.

    Attributes:
        template: the graph that it was made from.
        nodes: the nodes of that, by which it is updated.
        captured: graphs of other libraries' work that are part of it.
        ready: the stream that it was last launched on, and the call that does.
    """

    executable: bindings.CUgraphExec
    template: bindings.CUgraph
    nodes: list[bindings.CUgraphNode]
    captured: list[bindings.CUgraph]
    ready: tuple[StreamHandle, Call] | None = None


class GraphCalls(StreamCalls):
    """The calls of a driver that make, update and launch graphs."""

    def build_graph(self, nodes: Sequence[GraphNode]) -> CudaGraph:
        """An executable graph of these nodes, with their launches' arguments as they are now."""
        graph = self._check("cuGraphCreate", self._cuda.cuGraphCreate(0))
        handles: list[bindings.CUgraphNode] = []
        captured: list[bindings.CUgraph] = []
        try:
            for work, after, early in nodes:
                before = [handles[number] for number in after]
                handles.append(self._add_node(graph, work, [] if early else before, captured))
                if early and before:
                    edges = [self._early_edge] * len(before)
                    self._check("cuGraphAddDependencies", self._cuda.cuGraphAddDependencies(
                        graph, before, [handles[-1]] * len(before), edges, len(before)))
            executable = self._check("cuGraphInstantiate", self._cuda.cuGraphInstantiate(
                graph, self._cuda.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY
                if any(isinstance(node.work, CapturedWork) and node.work.priority for node in nodes) else 0))
        except BaseException:
            for each in (graph, *captured):
                self._cuda.cuGraphDestroy(each)  # a failure of this call must not hide the first one
            raise
        return CudaGraph(executable, graph, handles, captured)

    def _add_node(self, graph: bindings.CUgraph, work: PackedLaunch | DeviceCopy | CapturedWork,
                  before: list[bindings.CUgraphNode], captured: list[bindings.CUgraph]) -> bindings.CUgraphNode:
        if isinstance(work, CapturedWork):
            inner = self._captured(work)
            captured.append(inner)
            return self._check("cuGraphAddChildGraphNode", self._cuda.cuGraphAddChildGraphNode(
                graph, before, len(before), inner))
        if isinstance(work, DeviceCopy):
            return self._check("cuGraphAddMemcpyNode", self._cuda.cuGraphAddMemcpyNode(
                graph, before, len(before), self._copy_parameters(work), self._context()))
        return self._check("cuGraphAddKernelNode", self._cuda.cuGraphAddKernelNode(
            graph, before, len(before), self._launch_parameters(work)))

    def _captured(self, work: CapturedWork) -> bindings.CUgraph:
        """A graph of what another library gives a stream."""
        cuda = self._cuda
        stream = self.create_stream(work.priority)
        try:
            self._check("cuStreamBeginCapture", cuda.cuStreamBeginCapture(
                stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            try:
                work.capture(stream)
            except BaseException:
                cuda.cuStreamEndCapture(stream)  # a failure of this call must not hide the first one
                raise
            return self._check("cuStreamEndCapture", cuda.cuStreamEndCapture(stream))
        finally:
            self.destroy_stream(stream)

    def update_node(self, graph: CudaGraph, number: int, work: PackedLaunch | DeviceCopy) -> None:
        """Replace a node's work in later launches of the graph: the same kernel, or a copy, over other addresses."""
        node = graph.nodes[number]
        if isinstance(work, DeviceCopy):
            self._check("cuGraphExecMemcpyNodeSetParams", self._cuda.cuGraphExecMemcpyNodeSetParams(
                graph.executable, node, self._copy_parameters(work), self._context()))
        else:
            self._check("cuGraphExecKernelNodeSetParams", self._cuda.cuGraphExecKernelNodeSetParams(
                graph.executable, node, self._launch_parameters(work)))

    def _launch_parameters(self, launch: PackedLaunch) -> bindings.CUDA_KERNEL_NODE_PARAMS:
        found = self._cuda.CUDA_KERNEL_NODE_PARAMS()
        found.func, found.sharedMemBytes, found.kernelParams = launch.function, launch.shared_bytes, launch.addresses
        found.gridDimX, found.gridDimY, found.gridDimZ = launch.grid
        found.blockDimX, found.blockDimY, found.blockDimZ = launch.threads, 1, 1
        return found

    def _copy_parameters(self, copy: DeviceCopy) -> bindings.CUDA_MEMCPY3D:
        found = self._cuda.CUDA_MEMCPY3D()
        found.srcMemoryType = found.dstMemoryType = self._cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        found.dstDevice, found.srcDevice, found.WidthInBytes = copy
        found.Height = found.Depth = 1
        return found

    @cached_property
    def _early_edge(self) -> bindings.CUgraphEdgeData:
        """An edge from a kernel to one that waits for it itself (programmatic dependent launch)."""
        edge = self._cuda.CUgraphEdgeData()
        edge.type = self._cuda.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
        edge.from_port = self._cuda.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        return edge

    def graph_call(self, graph: CudaGraph, stream: StreamHandle) -> Call:
        """A call that starts the graph, and does not wait for it."""
        ready = graph.ready
        if ready is None or ready[0] is not stream:
            ready = graph.ready = stream, partial(
                self._launch_graph, ctypes.c_void_p(int(graph.executable)), ctypes.c_void_p(int(stream)))
        return ready[1]

    @cached_property
    def _launch_graph(self) -> CFunction:
        return self._c_function("cuGraphLaunch")

    def destroy_graph(self, graph: CudaGraph) -> None:
        """Destroy a graph of which no launch is in flight."""
        self._check("cuGraphExecDestroy", self._cuda.cuGraphExecDestroy(graph.executable))
        for each in (graph.template, *graph.captured):
            self._check("cuGraphDestroy", self._cuda.cuGraphDestroy(each))
