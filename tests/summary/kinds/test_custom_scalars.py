import pytest
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as theirs

from runhooks.summary import Margin, custom_scalars_value

LAYOUT = layout_pb2.Layout(
    category=[
        layout_pb2.Category(
            title="losses",
            chart=[
                layout_pb2.Chart(
                    title="both",
                    multiline=layout_pb2.MultilineChartContent(tag=["train/loss", r"eval/.*"]),
                ),
                layout_pb2.Chart(
                    title="band",
                    margin=layout_pb2.MarginChartContent(
                        series=[
                            layout_pb2.MarginChartContent.Series(
                                value="mean", lower="low", upper="high"
                            )
                        ]
                    ),
                ),
            ],
        ),
        layout_pb2.Category(title="empty"),
    ]
)


def test_it_is_tensorboards_message(writer) -> None:
    charts = {"both": ["train/loss", r"eval/.*"], "band": Margin("mean", "low", "high")}
    writer.custom_scalars({"losses": charts, "empty": {}})
    writer.custom_scalars(LAYOUT)
    expected = summary_pb2.Summary.FromString(theirs.pb(LAYOUT).SerializeToString()).value[0]
    assert writer.values == [expected, expected]


@pytest.mark.parametrize("layout", [None, [1], {"losses": ["loss"]}], ids=repr)
def test_what_is_no_layout_is_refused_at_once(writer, layout: object) -> None:
    with pytest.raises(TypeError, match="layout|category 'losses'"):
        writer.custom_scalars(layout)


@pytest.mark.parametrize("chart", ["loss", ["Multiline", ["loss"]]])
def test_what_is_no_chart_is_refused_at_once(chart: object) -> None:
    with pytest.raises(TypeError, match="chart 'both'"):
        custom_scalars_value({"losses": {"both": chart}})
