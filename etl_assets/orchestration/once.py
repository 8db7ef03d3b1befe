"""The asset that a project has once under its name: two calls of ``build_defs`` that share it are refused in our own words."""

from collections.abc import Mapping

import dagster as dg

from etl_assets.errors import ContractError


class OnceNamed(dg.AssetsDefinition):
    """An asset that refuses a second one of its key in the same project.

    Dagster would call that a duplicate key, and name none of the calls. It hands all assets of a project the same resources
    before it compares their keys: that is where two of them meet.
    """

    #: By key, the resources of the project that was built last.
    _built: dict[dg.AssetKey, Mapping[str, dg.ResourceDefinition]] = {}

    @classmethod
    def of(cls, asset: dg.AssetsDefinition) -> "OnceNamed":
        """Return the asset as one that a project has once."""
        # How it is executed follows from its op, and is a parameter in beta.
        return cls(**{name: value for name, value in asset.get_attributes_dict().items() if name != "execution_type"})

    def with_resources(self, resource_defs: Mapping[str, dg.ResourceDefinition]) -> "dg.AssetsDefinition":
        """Bind resources. Raises ``ContractError`` where another asset of this key was bound to the very same ones."""
        if self._built.get(self.key) is resource_defs:
            raise ContractError(
                f"build_defs: two calls in one project make the asset {self.key.to_user_string()!r}, and the sensor and the jobs "
                "beside it. Give all pipelines to one call, or give the second one a name of its own: "
                'build_defs([…], rooms, name="stock")'
            )
        self._built[self.key] = resource_defs
        return super().with_resources(resource_defs)
