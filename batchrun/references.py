"""What the references of a JSON Schema lead to, and which draft rules where.  Knows the library `referencing`.

References are resolved inside the document and to the published meta-schemas.  Nothing is ever fetched, neither from a
network nor from a disk: what else a schema needs was put into the document when it was loaded (`schema_files.py`).
"""

from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, SchemaRegistry, SchemaResource, specification_with

ROOT = "urn:batchrun:schema"
"""Under which a document is known to its own references, beside the names that it gives itself."""

REFERENCE_ALONE = (
    jsonschema.Draft3Validator,
    jsonschema.Draft4Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft7Validator,
)
"""Drafts in which the keywords beside a `$ref` mean nothing."""


class NotFound(LookupError):
    """A reference that leads nowhere.  Its text is the reference."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a subschema stands: the draft that rules it, and what its references are relative to."""

    draft: type[Validator]
    _resolver: Any

    @property
    def asserting(self) -> frozenset[str]:
        """Keywords that can refuse an instance in this draft."""
        return frozenset(self.draft.VALIDATORS)

    @property
    def reference_alone(self) -> bool:
        return self.draft in REFERENCE_ALONE

    @property
    def id_keyword(self) -> str:
        """How a schema of this draft names itself."""
        return "id" if self.draft in REFERENCE_ALONE[:2] else "$id"

    def enter(self, schema: Any) -> "Scope":
        """The scope inside of a subschema, which may name a draft and a base of its own."""
        named = isinstance(schema, dict) and [schema[name] for name in ("$id", "id", "$schema") if name in schema]
        if not named or not all(isinstance(name, str) for name in named):  # also for properties of such names
            return self
        draft = draft_of(schema, self.draft)
        resolver = self._resolver
        if not (draft in REFERENCE_ALONE and "$ref" in schema):
            resolver = resolver.in_subresource(_resource(schema, draft))
        return Scope(draft, resolver)

    def lookup(self, reference: str) -> tuple[Any, "Scope"]:
        """What a reference leads to, and the scope there.  Raises NotFound."""
        try:
            found = self._resolver.lookup(reference)
        except (Unresolvable, ValueError, AttributeError, TypeError) as error:  # the library trips over odd `id`s
            raise NotFound(reference) from error
        return found.contents, Scope(draft_of(found.contents, self.draft), found.resolver)


def root_scope(content: Any, default: type[Validator] = jsonschema.Draft202012Validator) -> Scope:
    """The scope of a whole document.  `default`: its draft where it names none."""
    draft = draft_of(content, default)
    registry = registry_with(content, default)
    resource = _resource(content, draft)
    return Scope(draft, registry.resolver(resource.id() or ROOT))


def registry_with(content: Any, default: type[Validator] = jsonschema.Draft202012Validator) -> SchemaRegistry:
    """A registry that holds a document, the published meta-schemas, and nothing else."""
    resource = _resource(content, draft_of(content, default))
    names = {ROOT, resource.id() or ROOT}
    found: Registry[Any] = REGISTRY.with_resources((name, resource) for name in names)
    return found


def draft_of(content: Any, default: type[Validator]) -> type[Validator]:
    """The draft that `$schema` names.  One that is no text is left for that draft's own check to refuse."""
    if isinstance(content, dict) and not isinstance(content.get("$schema", ""), str):
        return default
    return validator_for(content, default=default)


def _resource(content: Any, draft: type[Validator]) -> SchemaResource:
    dialect = str(draft.META_SCHEMA.get("$schema", draft.META_SCHEMA.get("$id", "")))
    return specification_with(dialect, default=DRAFT202012).create_resource(content)
