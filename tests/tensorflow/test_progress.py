"""``ProgressHook`` beside eager steps."""

import tensorflow

import runhooks as rh


def test_values_of_eager_steps_are_shown(capsys):
    values = {
        "loss": tensorflow.constant(0.123456),
        "lists": tensorflow.ragged.constant([[1], [2, 3]]),
        "name": tensorflow.constant("a"),
        "weight": tensorflow.Variable([2.5]),
    }
    with rh.Graph().as_default():
        made = rh.call(lambda: list(values.values()), num_outputs=4)
        outputs = dict(zip(values, made, strict=True))
        step = rh.train.get_or_create_global_step().assign_add(1)
        with rh.MonitoredSession(hooks=[rh.ProgressHook(tensors=outputs)]) as running:
            running.run(step)
    line = capsys.readouterr().err.splitlines()[0]
    assert line == (
        "step 1  lists <tf.RaggedTensor [[1], [2, 3]]>  loss 0.1235  name b'a'  weight 2.5"
    )
