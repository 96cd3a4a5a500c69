"""A first job file and schema, from somebody's own data and one example of the wanted answer."""
