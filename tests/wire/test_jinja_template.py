"""Template files: what they make of a row, what is refused when they are read, and that none runs on for ever."""

from __future__ import annotations

from typing import Any

import pytest

from batchwright.core.errors import UsageError
from batchwright.core.row_options import RowTemplate
from batchwright.wire.jinja_template import Filled, JinjaTemplate
from batchwright.wire.messages import Unfillable

COLUMNS = ("id", "text", "stars", "order id")
ROW: dict[str, object] = {"id": "a1", "text": "{{ id }} {% raw %}", "stars": "4", "order id": "77"}
MOST = 100_000


def template(text: str, *, most: int = MOST, parts: dict[str, str] | None = None) -> JinjaTemplate:
    named = {f"{name}.jinja": part for name, part in (parts or {}).items()}
    return JinjaTemplate(RowTemplate(name="p.jinja", text=text, parts=named), most)


def fill(text: str, values: dict[str, Any] | None = None, parts: dict[str, str] | None = None) -> Filled:
    return template(text, parts=parts).fill(ROW if values is None else values)


def refused(text: str, parts: dict[str, str] | None = None) -> tuple[str, str]:
    with pytest.raises(Unfillable) as caught:
        fill(text, parts=parts)
    return caught.value.problem.code, caught.value.problem.message


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Say {{ text }}\n", "Say {{ id }} {% raw %}"),
        ('{{ row["order id"] }} of {{ id }}', "77 of a1"),
        ("{% if stars|int > 3 %}\nhappy\n{% endif %}\n{{ id }}", "happy\na1"),
        ("\n  {{ id }}\n\n", "a1"),
        ("{% for letter in id %}{{ loop.index ~ letter }}{{ ',' if not loop.last }}{% endfor %}", "1a,21"),
        ("{% include 'part.jinja' %} {{ id }}", "from a1 a1"),
        ("{% from 'macros.jinja' import loud %}{{ loud(id) }}", "A1!"),
        ("{{ nothing|default('none') }} {{ id }}", "none a1"),
        ("{{ '<b>' }} {{ text[:2] }}", "<b> {{"),
    ],
)
def test_the_users_message(text: str, filled: str) -> None:
    parts = {"part": "from {{ id }}\n", "macros": "{% macro loud(x) %}{{ x|upper }}!{% endmacro %}"}
    assert fill(text, parts=parts) == Filled(user=filled)


def test_values_of_json_are_what_they_are() -> None:
    row = {"n": 3, "deep": {"tags": ["x", "y"]}, "none": None, "yes": True}
    text = "{{ n + 1 }} {{ deep.tags|join('+') }} {{ 'no' if none is none }} {{ yes }}"
    assert fill(text, row).user == "4 x+y no True"


def test_blocks_are_messages_and_share_what_is_defined_beside_them() -> None:
    text = """{% set tone = "short" %}
    {% macro quoted(x) %}"{{ x }}"{% endmacro %}

    {% block user %}
    {{ quoted(id) }}
    {% endblock %}
    {% block system %}Be {{ tone }} on {{ id }}.{% endblock %}"""
    assert fill(text) == Filled(user='"a1"', system="Be short on a1.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one\n{{ text", "p.jinja, line 2: unexpected end of template"),
        ("{{ id }}\n{% endfor %}", "p.jinja, line 2: "),
        ("the same for all", "names no column"),
        ("{% block user %}all alike{% endblock %}", "names no column"),
        ("{% block system %}{{ id }}{% endblock %}", "line 1: there is a block called system, and none called user"),
        ("{% block user %}{{ id }}{% endblock %}\nmore", "this stands outside of the blocks"),
        ("{{ id }}\n{% block answer %}{% endblock %}", "line 2: block answer: expected blocks called system and user"),
        ("{% if id %}{% block user %}{% endblock %}{% endif %}", "apart"),
        ("{% extends 'part.jinja' %}{{ id }}", "line 1: extends is not taken here"),
        ("{% include 'broken.jinja' %}{{ id }}", "broken.jinja, line 1: "),
        ("{{ id|nofilter }}", "line 1: No filter named 'nofilter'"),
    ],
)
def test_what_cannot_be_right_for_any_row(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        template(text, parts={"part": "x", **({"broken": "{% if %}"} if "broken" in text else {})})
    assert message in str(caught.value)


def test_a_column_that_is_not_there_is_told_with_its_line_and_those_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        template("{{ id }}\n\n{{ txt }}").check(COLUMNS)
    assert str(caught.value) == (
        "p.jinja, line 3 names 'txt', which is no column; the input has id, text, stars, order id"
    )
    for asked in ("{% if txt is defined %}{{ txt }}{% endif %}{{ id }}", "{{ txt|default('') }}{{ id }}"):
        template(asked).check(COLUMNS)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{{ id }}\n{{ row.txt }}", "missing_column", "p.jinja, line 2: 'dict object' has no attribute 'txt'"),
        ("{{ id }}\n{{ id }}{{ txt }}", "missing_column", "line 2: 'txt' is undefined; the row has the columns id, te"),
        ("{% include 'part.jinja' %}{{ id }}", "missing_column", "part.jinja, line 2: 'txt' is undefined"),
        ("{{ id }}\n{{ 'x' if stars > 3 }}", "template_failed", "line 2 cannot be filled: '>' not supported"),
        ("{{ stars|int // 0 }}", "template_failed", "line 1 cannot be filled: integer division"),
        ("{{ id.__class__ }}", "template_failed", "unsafe"),
        ("{{ row.update(id='b') }}", "template_failed", "unsafe"),
    ],
)
def test_what_a_row_lacks(text: str, code: str, message: str) -> None:
    found = refused(text, {"part": "{{ id }}\n{{ txt }}"})
    assert found[0] == code
    assert message in found[1]


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(10**9) %}{{ id }}{% endfor %}",
        "{% for i in range(10**30) %}{{ id }}{% endfor %}",
        "{% for i in range(3000) %}{% for j in range(3000) %}{% if id == i %}{% endif %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(id) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}{{ id }}",
        "{{ id * 10**9 }}",
        "{{ 'x' * 1000000000000 }}{{ id }}",
        "{{ 10**(10**10) }}{{ id }}",
        "{% set ns = namespace(x=id) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=id) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{% macro f(x, n) %}{% if n %}{{ f(x, n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(id, 99999) }}",
        "{% for i in range(60000) %}{{ id }}{% endfor %}",
        "{{ id|center(1000000000) }}",
        "{{ id.ljust(1000000000) }}",
        "{{ '%1000000000d' % 1 }}{{ id }}",
        "{% for i in range(90000) %}{{ range(90000)|sum }}{% endfor %}{{ id }}",
    ],
)
def test_nothing_runs_on_or_grows_for_ever(text: str) -> None:
    code, message = refused(text)
    assert code == "template_too_large"
    assert message.startswith("p.jinja")


def test_the_bound_of_a_row_counts_both_messages_together() -> None:
    half = "x" * 60
    text = f"{{% block system %}}{half}{{% endblock %}}{{% block user %}}{half}{{{{ id }}}}{{% endblock %}}"
    assert len(template(text, most=150).fill(ROW).user) == 62
    with pytest.raises(Unfillable, match="longer than a row may be"):
        template(text, most=100).fill(ROW)


def test_every_row_has_its_own_steps() -> None:
    found = template("{% for i in range(300000) %}{% endfor %}{{ id }}")
    for _ in range(5):
        assert found.fill(ROW).user == "a1"


def test_nothing_is_left_to_chance() -> None:
    for text in ("{{ lipsum() }}{{ id }}", "{{ id|random }}"):
        with pytest.raises((UsageError, Unfillable)):
            template(text).fill(ROW)
