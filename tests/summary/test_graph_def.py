from typing import NamedTuple

from tensorboard.compat.proto import graph_pb2

from runhooks.summary import FileWriter, encode_graph


class Output(NamedTuple):
    name: str


class Operation(NamedTuple):
    name: str
    type: str
    inputs: tuple[Output, ...] = ()
    control_inputs: tuple["Operation", ...] = ()


class Graph:
    def get_operations(self) -> list[Operation]:
        split = Operation("data/split", "Call")
        init = Operation("init", "NoOp")
        inputs = Output("data/split:0"), Output("data/split:1")
        return [split, init, Operation("loss", "Call", inputs, (init,))]


def test_nodes_are_protobufs() -> None:
    graph = graph_pb2.GraphDef.FromString(encode_graph(Graph()))
    assert [(node.name, node.op, list(node.input)) for node in graph.node] == [
        ("data/split", "Call", []),
        ("init", "NoOp", []),
        ("loss", "Call", ["data/split", "data/split:1", "^init"]),
    ]
    assert graph.versions.producer > 0


def test_tensorboard_reads_it(accumulate, tmp_path) -> None:
    FileWriter(tmp_path, Graph()).close()
    assert [node.name for node in accumulate().Graph().node] == ["data/split", "init", "loss"]
