"""``require``: says what to install where a framework is missing."""

from importlib.util import find_spec


def require(module: str, package: str) -> None:
    """Raise ImportError unless ``module`` is installed, which pip knows as ``package``."""
    if find_spec(module) is None:
        raise ImportError(
            f"runhooks.bridges.{module} needs {module}, which is not installed: "
            f"pip install {package!r}",
            name=module,
        )
