"""Which path leads where."""

from oncely.surface.http.paths import Paths
from oncely.surface.http.table import TABLE

PATHS = Paths({path: path for path in {endpoint.path for endpoint in TABLE}})


def test_every_path_of_the_table_is_found_with_its_parts() -> None:
    for endpoint in TABLE:
        asked = endpoint.path.replace("{queue}", "a.b").replace("{id}", "7").replace("{key}", "g:1")
        found = PATHS.find(asked)
        assert found is not None, asked
        path, parts = found
        assert path == endpoint.path
        assert path.format(**parts) == asked


def test_all_else_is_not_found() -> None:
    for path in ("", "/", "/v1", "/v1/jobs/", "/v1/queues//jobs", "/v1/queues/a/b/jobs", "v1/jobs"):
        assert PATHS.find(path) is None, path


def test_a_name_goes_before_anything_else() -> None:
    paths = Paths({"/jobs/{id}": 1, "/jobs/batch": 2, "/jobs/{id}/ack": 3})
    assert paths.find("/jobs/batch") == (2, {})
    assert paths.find("/jobs/other") == (1, {"id": "other"})
    assert paths.find("/jobs/other/ack") == (3, {"id": "other"})
