"""Declared pipelines without Spark: what a file says, and every mistake with line and column."""

import datetime as dt
import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.pipelines import sources
from rivermouth.pipelines.catalog import catalog
from rivermouth.pipelines.checking import Made, Name, check
from rivermouth.pipelines.json_schema import FILE, json_schema
from rivermouth.pipelines.nodes import Mark, parse
from rivermouth.pipelines.running import Pipeline, PipelineError
from rivermouth.pipelines.sinks import newest

FILES = sorted((Path(__file__).parents[2] / "examples" / "pipelines").glob("*.yaml"))
GOOD = """
name: taxis
sources:
  taxis: {files: {path: taxis, schema: "taxi int, at timestamp, lon double, lat double"}}
tables:
  districts: {geojson: districts.geojson}
steps:
  placed:
    join_table:
      events: taxis
      table: districts
      on: {within: [{point: [lon, lat]}, geometry]}
sinks:
  out: {console: {frame: placed}}
"""


def checked(text, environment=None):
    return check(parse(textwrap.dedent(text), environment or {}), Path("/work"))


def mistakes(text, environment=None):
    return [str(mistake) for mistake in checked(text, environment)[1]]


def value_of(text):
    return parse(f"a: {text}", {}).root.value["a"].value.value


# -- YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("yes", "yes"), ("true", True), ("False", False), ("null", None), ("~", None),
        ("", None), ("12", 12), ("-3", -3), ("007", "007"), ("1.5", 1.5), ("1e3", 1000.0),
        ("1:30", "1:30"), ("'12'", "12"), ("5 minutes", "5 minutes"),
        ("2026-01-02", dt.date(2026, 1, 2)), ("2026-99-02", "2026-99-02"),
        ("2026-01-02T03:04:05", dt.datetime(2026, 1, 2, 3, 4, 5)),
    ],
)  # fmt: skip
def test_scalars_are_yaml_1_2s(text, value):
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))


def test_every_value_and_key_has_its_line_and_column():
    root = parse("a:\n  b: [1, x]\n", {}).root
    inner = root.value["a"].value.value["b"]
    assert (inner.mark, inner.value.mark) == (Mark(2, 3), Mark(2, 6))
    assert [node.mark for node in inner.value.value] == [Mark(2, 7), Mark(2, 10)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "this is no YAML: "),
        ("", "1:1: the file is empty"),
        ("a: 1\na: 2\n", "2:1: 'a' is given twice, first in line 1."),
        ("a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python/object:os.system"),
        ("a: &a [*a]", "it contains itself"),
        ("a: !mine 1", "1:4: the tag !mine is not known"),
    ],
)
def test_what_is_no_pipeline_is_said(text, said):
    assert any(said in str(mistake) for mistake in parse(text, {}).mistakes), parse(text).mistakes


def test_aliases_cannot_make_a_file_large():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    parsed = parse("\n".join(lines), {})
    assert "too large" in str(parsed.mistakes[0])


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_reader_fail(text):
    checked(text)


def test_variables_come_from_the_environment_and_are_never_shown():
    parsed = parse("a: x-${USER_NAME}-$${NOT}\nb: ${PORT}\nc: '${PORT}'\n",
                   {"USER_NAME": "s3cret", "PORT": "80"})  # fmt: skip
    found = [entry.value.value for entry in parsed.root.entries]
    assert found == ["x-s3cret-${NOT}", 80, "80"]
    assert parsed.redacted("it is x-s3cret-y") == "it is x-${USER_NAME}-y"
    assert mistakes("name: ${NO_SUCH}")[0] == (
        "1:1: it has no sinks, so that nothing would run."
    )  # fmt: skip
    assert mistakes("name: ${NO_SUCH}")[1] == (
        "1:7: the environment has no variable NO_SUCH. Set it."
    )  # fmt: skip


# -- what is declared


def test_a_declaration_is_a_call():
    declared, wrong = checked(GOOD)
    assert wrong == []
    placed = declared.sections["steps"]["placed"]
    assert placed.function.call is rm.join_table
    assert placed.arguments["events"] == Name("frame", "taxis", Mark(10, 15))
    on = placed.arguments["on"]
    assert isinstance(on, Made)
    assert on.function.call is rm.within
    assert on.arguments["b"] == "geometry"
    assert on.arguments["a"].arguments == {"x": "lon", "y": "lat"}
    assert declared.sections["tables"]["districts"].arguments == {"path": "/work/districts.geojson"}


@pytest.mark.parametrize(
    ("text", "function", "arguments"),
    [
        ("{keys: uid}", rm.keys, {"columns": "uid"}),
        ("{keys: [uid, city]}", rm.keys, {"columns": ["uid", "city"]}),
        ("{keys: {uid: user_id}}", rm.keys, {"columns": {"uid": "user_id"}}),
        ("{keys: {columns: {uid: user_id}}}", rm.keys, {"columns": {"uid": "user_id"}}),
        ("{asof: [at, since]}", rm.asof, {"value": "at", "column": "since"}),
        (
            "{between: {value: at, column: since, lower: -5 minutes, upper: 0 seconds, by: road}}",
            rm.between,
            {"value": "at", "column": "since", "lower": "-5 minutes", "upper": "0 seconds",
             "by": "road"},
        ),
    ],
)  # fmt: skip
def test_arguments_by_name_in_a_list_or_alone(text, function, arguments):
    before = "{within: [{point: [lon, lat]}, geometry]}"
    declared, wrong = checked(GOOD.replace(before, text))
    assert wrong == []
    on = declared.sections["steps"]["placed"].arguments["on"]
    assert (on.function.call, on.arguments) == (function, arguments)


@pytest.mark.parametrize(("text", "plan"), [("native", "native"), ("{cheapest: 500000}", 500_000)])
def test_a_plan_is_a_name_or_chosen_for_so_many_rows(text, plan):
    declared, wrong = checked(
        GOOD.replace("table: districts", f"table: districts\n      plan: {text}")
    )
    assert wrong == []
    found = declared.sections["steps"]["placed"].arguments["plan"]
    if isinstance(found, Made):
        assert found.function.call is rm.cheapest
        found = found.arguments["rows"]
    assert found == plan


def test_summaries_inline_or_by_name_and_bare_names():
    text = """
        sources: {a: {rate: }}
        summaries:
          s: {time: timestamp, window: {tumbling: 1 minute}, n: count, top: {max: value}}
        steps:
          one: {aggregate: {events: a, summary: s, slack: max_delay}}
          two:
            aggregate:
              events: a
              summary:
                time: timestamp
                window: {sliding: [2 minutes, 1 minute]}
                n: {count: value}
        sinks: {out: {memory: one}, more: {memory: {frame: two}}}
    """
    declared, wrong = checked(text)
    assert wrong == []
    summary = declared.sections["steps"]["two"].arguments["summary"]
    assert summary.function.call is rm.summary
    assert summary.arguments["n"].function.call is rm.count
    assert declared.sections["sinks"]["out"].arguments["frame"].name == "one"


# -- mistakes


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("sources:", "source:", "3:1: a pipeline has no 'source'. Did you mean 'sources'?"),
        ("events: taxis", "evnts: taxis",
         "10:7: join_table has no 'evnts'. Did you mean 'events'?"),
        ("events: taxis", "evnts: taxis", "9:5: join_table needs 'events', the name of a frame."),
        ("events: taxis", "events: taxi", "10:15: there is no frame 'taxi'. Did you mean 'taxis'?"),
        ("events: taxis", "events: [taxis]",
         "10:15: join_table: events is to be the name of a frame, but is a list."),
        ("table: districts", "table: streets", "11:14: there is no table 'streets'."),
        ("within", "witin", "12:12: join_table: on has no 'witin'. Did you mean 'within'?"),
        ("join_table:", "join_tabel:",
         "9:5: placed has no 'join_tabel'. Did you mean 'join_table'?"),
        ("[lon, lat]", "[lon, 3]", "12:35: point: y is to be text, but is 3."),
        ("[lon, lat]", "[lon, lat, alt]", "12:40: point takes at most 2 values: ['x', 'y']."),
        (", geometry]", "]", "12:12: within needs 'b', text or a geometry."),
        ("table: districts", "table: districts\n      how: outer",
         "12:12: join_table: how is to be one of 'inner', 'left', 'semi', 'anti', but is 'outer'."),
        ("table: districts", "table: districts\n      cache: {full: {refresh: soon}}",
         "12:31: full: refresh: 'soon' is not a length of time."),
        ("table: districts", "table: districts\n      cache: incremntal",
         "12:14: join_table: cache is 'incremntal', which is not a cache. "
         "Did you mean 'incremental'?"),
        ("table: districts", "table: districts\n      cache: {incremental: {rows: many}}",
         "12:35: incremental: rows is to be a whole number, but is 'many'."),
        ("table: districts", "table: districts\n      cache: {external: 3}",
         "12:25: external takes no arguments."),
        ("  districts: {", "  districts: 3 #{", "6:14: districts is to be one of ['delta',"),
        ("console: {frame: placed}", "console: {frame: placed, rows: true}",
         "14:40: console: rows is to be a whole number, but is True."),
        ("name: taxis", "trigger: 5", "2:10: trigger is to be a length of time"),
        ("  taxis: {files", "  placed: {files", "8:3: 'placed' is a source and a step. Rename one"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_its_column_and_a_hint(old, new, said):
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    assert any(mistake.startswith(said) for mistake in mistakes(text)), mistakes(text)


def test_all_mistakes_come_at_once():
    text = GOOD.replace("events", "evnts").replace("geojson", "geojsn").replace("frame:", "fram:")
    found = mistakes(text)
    assert [mistake.split(":")[0] for mistake in found] == ["6", "9", "10", "14", "14"]


def test_steps_that_need_each_other_are_found():
    text = """
        steps:
          a: {select: {frame: c}}
          b: {select: {frame: a}}
          c: {select: {frame: b}}
          d: {select: {frame: d}}
        sinks: {out: {console: {frame: a}}}
    """
    assert mistakes(text) == [
        "3:3: 'a' needs itself: a -> c -> b -> a.",
        "6:3: 'd' needs itself: d -> d.",
    ]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(rm.RivermouthError, match=r"run: .*no\.yaml cannot be read; .*No such file"):
        Pipeline.read(tmp_path / "no.yaml")


def test_the_error_of_a_file_has_a_line_for_each_mistake(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(GOOD.replace("events", "evnts"))
    with pytest.raises(PipelineError, match=r"it has 2 mistakes") as error:
        Pipeline.read(path)
    assert error.value.lines[1] == (
        f"{path}:10:7: join_table has no 'evnts'. Did you mean 'events'?"
    )  # fmt: skip


# -- the examples, the catalog and the schema


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_examples_have_no_mistakes(path):
    assert Pipeline.read(path).name == path.stem


def test_every_operator_and_parameter_can_be_declared():
    known = catalog()
    assert {"join_table", "join_interval", "join_window", "aggregate", "fence_events",
            "trips"} <= set(known["step"])  # fmt: skip
    assert set(known["table"]) >= {n for n in rm.tables.__all__ if n.islower()} - {"geometry_field"}
    assert {"files", "kafka", "rate"} == set(known["source"])
    assert {"exact", "files", "kafka", "console", "memory", "upsert"} == set(known["sink"])
    assert {"count", "top", "skyline"} <= set(known["aggregate"])
    assert {"tumbling", "sliding"} <= set(known["window"])
    assert {"files", "delta", "debezium", "polling"} == set(known["changes"])
    assert {"full", "incremental", "external"} == set(known["cache"])
    assert {"fixed", "max_delay", "quality"} == set(known["slack"])
    assert len(known["condition"]) == 17
    declared = {name for functions in known.values() for name in functions}
    modules = {name: getattr(getattr(rm, name), "__module__", "") for name in rm.__all__}
    of_spec = {name for name, module in modules.items() if module.startswith("rivermouth.spec.")}
    assert of_spec <= declared
    left_out = {
        f"{function.name}({name})"
        for functions in known.values()
        for function in functions.values()
        for name, each in inspect.signature(function.call).parameters.items()
        if name not in (*function.names, "spark") and each.kind is not each.VAR_KEYWORD
    }
    assert left_out == set()


def test_the_shipped_schema_is_the_catalogs():
    assert json.loads(FILE.read_text()) == json_schema()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_allows_the_examples(path):
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    plain = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    numbers = json.loads(json.dumps(plain), object_hook=_with_types)
    jsonschema.validate(numbers, json_schema())


def _with_types(found):
    """BaseLoader gives texts only; `on` stays one, numbers become numbers."""
    return {key: _typed(value) for key, value in found.items()}


def _typed(value):
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value or None
    return value


def test_the_files_of_the_page_have_no_mistakes():
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    declared = [block for block in blocks if "sinks:" in block]
    assert len(declared) >= 3
    for block in declared:
        assert mistakes(block, {"DB_PASSWORD": "x"}) == []


# -- the upsert's newest rows


def test_of_rows_with_the_same_keys_the_newest_is_written():
    import pyarrow as pa

    rows = pa.table({"k": [1, 2, 1, None, None], "at": [3, 1, None, 1, 2], "v": list("abcde")})
    found = newest(rows, ["k"], ["at"]).to_pylist()
    assert sorted(found, key=str) == [
        {"k": 1, "at": 3, "v": "a"}, {"k": 2, "at": 1, "v": "b"}, {"k": None, "at": 2, "v": "e"},
    ]  # fmt: skip


def test_a_stream_of_one_file_is_refused_before_it_runs(tmp_path):
    path = tmp_path / "taxis.parquet"
    path.touch()
    with pytest.raises(DefinitionError) as raised:
        sources.files(None, path)
    assert str(raised.value) == (
        f"files: a stream reads a folder; {str(path)!r} is a file. Name its folder, or read it "
        "once: stream=False."
    )
