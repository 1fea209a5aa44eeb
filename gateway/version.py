"""The one place that knows the version at run time: the installed distribution's own."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("model-gateway")
except PackageNotFoundError:  # a source tree on sys.path that was never installed
    __version__ = "0+unknown"
