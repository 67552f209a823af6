# For pyright, which would not look into this source root otherwise: see core/whenabouts/__init__.py.
