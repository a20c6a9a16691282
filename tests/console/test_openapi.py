"""The description of the API: all of its routes, and answers of the described form."""

import pytest

from ignis_console.pages import PAGES


def resolved(schema, document):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def check(value, schema, document, path):
    """Raise unless a value has the form that the description says."""
    schema = resolved(schema, document)
    if "anyOf" in schema:
        for each in schema["anyOf"]:
            try:
                check(value, each, document, path)
            except AssertionError:
                continue
            return
        raise AssertionError(f"{path}: {value!r} has none of the forms")
    kinds = {
        "integer": int,
        "number": (int, float),
        "string": str,
        "boolean": bool,
        "null": type(None),
        "object": dict,
        "array": list,
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r}"
    if isinstance(value, dict) and "properties" in schema:
        assert sorted(value) == sorted(schema["required"]), path
        for name, each in schema["properties"].items():
            check(value[name], each, document, f"{path}.{name}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            check(item, schema.get("items", {}), document, f"{path}[{number}]")


@pytest.fixture
def document(operator):
    return operator.get("/api/openapi.json").json()


def test_every_route_of_the_api_is_described(operator, document):
    described = {
        (method, path) for path, methods in document["paths"].items() for method in methods
    }
    routes = {
        (method.lower(), route.path)
        for route in operator.app.routes
        for method in getattr(route, "methods", None) or ()
        if route.path.startswith("/api/") and method != "HEAD"
    }
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]

    assert routes - described == {("get", "/api/session"), ("get", "/api/openapi.json")}
    assert described <= routes
    assert len(names) == len(set(names)), sorted(names)
    pytest.importorskip("openapi_spec_validator").validate(document)


def test_ids_are_described_as_they_may_be_sent(document):
    path = document["paths"]["/api/queues/{queue}/actions/delete"]
    (in_query,) = [each for each in path["get"]["parameters"] if each["name"] == "ids"]
    body = path["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]

    assert in_query["schema"] == {"type": "string"}
    for ids in ("1 2", 1, [1, 2], ["1", 2]):
        check(ids, body["ids"], document, "ids")
    with pytest.raises(AssertionError):
        check([[1]], body["ids"], document, "ids")


def test_answers_have_the_form_that_is_described(operator, queue, document):
    message = queue.choose("all").ids[0].as_py()
    for page in PAGES:
        answer = operator.get(page.api.format(queue="orders", message_id=message)).json()
        operation = document["paths"][page.api]["get"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]

        check(answer, schema, document, page.name)
    error = operator.get("/api/queues/none").json()
    check(error, document["components"]["schemas"]["Error"], document, "error")


def test_a_group_of_the_sideline_is_a_described_choice(document):
    group = {"group", "kind", "fingerprint", "reason"}
    sideline = document["paths"]["/api/queues/{queue}/sideline"]["get"]["parameters"]
    assert group <= {each["name"] for each in sideline}
    for action in ["redrive", "delete", "sideline", "reload"]:
        path = document["paths"][f"/api/queues/{{queue}}/actions/{action}"]
        body = path["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]

        assert group <= {each["name"] for each in path["get"]["parameters"]}
        assert group <= set(body)
