"""Let the helpers of the comparison with the model show what differs, as tests do."""

import pytest

pytest.register_assert_rewrite("pair", "invariants")
