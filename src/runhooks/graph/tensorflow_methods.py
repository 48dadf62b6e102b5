"""What replaces the methods that variables have in TensorFlow alone."""

_NO_INIT = "there are no initializers to run: in a new session, a variable has its initial value"
_ITSELF = "a variable is the tensor of its value; session.run(variable) fetches it"

#: Advice by the names of the methods.
INSTEAD = {
    "initializer": _NO_INIT,
    "initialized_value": _NO_INIT,
    "eval": _ITSELF,
    "value": _ITSELF,
    "read_value": _ITSELF,
    "assign_sub": "use variable.assign_add(-delta)",
    "load": "fetch variable.assign(value), or call session.assign({name: value})",
}
