"""The OpenAPI document: valid, with examples, and true of the service, as schemathesis finds."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.service.conftest import serving
from visvm.service.limits import Limits

pytestmark = pytest.mark.slow

PATHS = {
    "/api/health", "/api/ready", "/metrics", "/api/model", "/api/history", "/api/model/file",
    "/api/predict", "/api/check", "/api/evaluate", "/api/suggest", "/api/explain",
    "/api/learn", "/api/forget", "/api/classes/rename", "/api/classes/forget", "/api/undo",
    "/api/jobs/{id}", "/api/jobs/{id}/events", "/api/jobs/{id}/cancel",
}  # fmt: skip


@pytest.fixture(scope="module")
def schema(place, encoder, tmp_path_factory):
    """The schema of a service that knows three classes."""
    limits = Limits(waiting_jobs=1000)  # requests come faster than changes are made
    path = tmp_path_factory.mktemp("openapi") / "m.visvm"
    with serving(path, encoder, limits=limits) as client:
        client.teach(place / "base")
        yield schemathesis.openapi.from_asgi(
            "/openapi.json", client.app, headers={"Host": "localhost"}
        )


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_the_service(schema, mode):
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == len(PATHS)
    if mode is GenerationMode.NEGATIVE:  # without a body there is nothing wrong to send
        operations = [each for each in operations if each.body]
        assert len(operations) == 10
    for operation in operations:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=25, suppress_health_check=list(HealthCheck))
        def attempt(case):
            case.call_and_validate(
                headers={"Host": "localhost"}, excluded_checks=[positive_data_acceptance]
            )  # bytes are no image

        attempt()


def test_the_document_names_every_endpoint_with_a_description(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == PATHS
    for operations in paths.values():
        for operation in operations.values():
            assert operation["description"]
            assert "4XX" in operation["responses"]


@pytest.mark.parametrize(
    "name", ["Predictions", "JobInfo", "Problem", "Renaming", "ForgettingClass", "ClassCount"]
)
def test_what_goes_over_the_wire_has_an_example(client, name):
    assert client.get("/openapi.json").json()["components"]["schemas"][name]["examples"]
