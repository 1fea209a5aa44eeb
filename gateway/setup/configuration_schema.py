"""The JSON Schema (draft 2020-12) of a configuration, for editors: made of the types that the settings are read by.

It knows keys, types and bounds. What depends on other values, such as a model of a provider that is not there, only
`gateway check` finds. TOML's dates are texts for a schema.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, structs

from gateway.config.includes import INCLUDE
from gateway.config.secret import Secret
from gateway.config.settings import SECTIONS, HookSettings, ModelPattern, ProviderSettings, Settings
from gateway.config.toml_reader import FromTables, FromToml, fields_of
from gateway.config.variables import VARIABLE, takes_variable

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": "^(env|file):."}

Schema = dict[str, Any]


def configuration_schema(providers: Mapping[str, type[Struct]], hooks: Mapping[str, type[Struct]]) -> Schema:
    """The schema; `providers` and `hooks`: the options of each plugin's provider or hook, by its name."""
    made = _Maker()
    sections = {name: made.of(field.type) for name, field in fields_of(Settings).items() if name in SECTIONS}
    sections[INCLUDE] = {"type": "array", "items": {"type": "string", "minLength": 1}}
    sections["models"]["patternProperties"] = {r"\*": made.of(ModelPattern)}
    sections["providers"] = {"type": "object", "additionalProperties": made.provider(providers)}
    sections["hooks"] = {"type": "object", "additionalProperties": made.hook(hooks)}
    return {
        "$schema": DIALECT,
        "title": "gateway.toml",
        "type": "object",
        "properties": sections,
        "additionalProperties": False,
        "$defs": dict(sorted(made.tables.items())),
    }


def _or_variable(schema: Schema) -> Schema:
    """The schema of a value that `env:NAME` may stand for."""
    if schema == {"type": "string"}:
        return schema
    choices = schema["anyOf"] if schema.keys() == {"anyOf"} else [schema]
    return {"anyOf": [*choices, dict(VARIABLE)]}


class _Maker:
    """Makes the schemas of types; those of tables have a name, and are made once."""

    def __init__(self) -> None:
        self.tables: dict[str, Schema] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of a type, as `TomlReader.value` reads it."""
        if get_origin(kind) in (types.UnionType, Union):
            parts = [part for part in get_args(kind) if part is not types.NoneType]
            return self.of(parts[0]) if len(parts) == 1 else _or_variable({"anyOf": [*map(self._of_value, parts)]})
        schema = self._of_value(kind)
        return _or_variable(schema) if takes_variable(kind) else schema

    def _of_value(self, kind: Any) -> Schema:
        """The schema of what stands in the file itself."""
        for mark in getattr(kind, "__metadata__", ()):
            if isinstance(mark, FromToml):
                return dict(mark.schema)
            if isinstance(mark, FromTables):
                return dict(mark.schema(self.of))
        if kind is Any:
            return {}
        if kind is Secret:
            return dict(REFERENCE)
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self._named(kind)
        return self._collection(kind)

    def _collection(self, kind: Any) -> Schema:
        inner = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        origin, arguments = get_origin(inner), get_args(inner)
        if origin in (list, tuple):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is Literal:
            return {"enum": list(arguments)}
        return msgspec.json.schema(kind)

    def _named(self, kind: type[Struct]) -> Schema:
        name = kind.__qualname__.removesuffix("Settings")
        if name not in self.tables:
            self.tables[name] = {}  # a table in itself would end here
            self.tables[name] = self.table(kind)
        return {"$ref": f"#/$defs/{name}"}

    def table(self, kind: type[Struct]) -> Schema:
        """The schema of a table with the fields of a Struct, and no others."""
        fields = fields_of(kind)
        found: Schema = {"type": "object", "properties": {name: self._field(field) for name, field in fields.items()}}
        if required := [name for name, field in fields.items() if field.required]:
            found["required"] = required
        return {**found, "additionalProperties": False}

    def _field(self, field: structs.FieldInfo) -> Schema:
        schema, default = self.of(field.type), field.default
        read_otherwise = any(isinstance(mark, FromToml) for mark in getattr(field.type, "__metadata__", ()))
        if (
            default is NODEFAULT
            or default is None
            or read_otherwise
            or not isinstance(default, (bool, int, float, str))
        ):
            return schema
        return {**schema, "default": default}

    def provider(self, options: Mapping[str, type[Struct]]) -> Schema:
        """The schema of one provider, whose keys depend on its plugin. A credential may have any of its options."""
        own = self.table(ProviderSettings)["properties"]
        del own["options"]
        of_plugins = []
        for name, kind in sorted(options.items()):
            keys = self.table(kind)["properties"]
            several = {"type": "array", "items": {"type": "object", "properties": keys, "additionalProperties": False}}
            table = {**own, "credentials": several, **keys}
            of_plugins.append(self._of_plugin("provider", name, table))
        return {"type": "object", "required": ["plugin"], "properties": {"plugin": own["plugin"]}, "allOf": of_plugins}

    def hook(self, options: Mapping[str, type[Struct]]) -> Schema:
        """The schema of one hook, whose keys depend on its plugin."""
        own = self.table(HookSettings)["properties"]
        del own["options"]
        tables = {name: {**own, **self.table(kind)["properties"]} for name, kind in sorted(options.items())}
        of_plugins = [self._of_plugin("hook", name, table) for name, table in tables.items()]
        schema = {"type": "object", "required": ["plugin"], "properties": {"plugin": own["plugin"]}}
        return {**schema, "allOf": of_plugins} if of_plugins else schema  # an empty `allOf` is not allowed

    def _of_plugin(self, kind: str, name: str, table: Schema) -> Schema:
        """The schema that holds if `plugin` is that of the name."""
        self.tables[f"{kind} {name}"] = {"type": "object", "properties": table, "additionalProperties": False}
        return {
            "if": {"properties": {"plugin": {"const": name}}},
            "then": {"$ref": f"#/$defs/{kind} {name}".replace(" ", "%20")},
        }
