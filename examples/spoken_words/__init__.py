"""New spoken words."""
