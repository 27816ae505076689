"""What only an instructor runs: nbgrader's configuration and the trusted step that marks submissions."""

import sys

# jsonschema, and so nbformat, would compile a grammar of web addresses for a second at every start; none is checked here
sys.modules.setdefault("rfc3987_syntax", None)
