"""Chat templates: rendered as their authors meant, kept in their sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.tokenizer.chat import render_chat, render_template
from pipeline.tokenizer.errors import ChatTemplateError
from pipeline.tokenizer.tokenizer import CHAT_TEMPLATE, Tokenizer, tokenizer_from_gguf
from tests.helpers.tokenizer_gguf import boundary_vocabulary, prefixed, with_tokens

CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MESSAGES = [
    {"role": "system", "content": "Be <brief> & plain."},
    {"role": "user", "content": "Capital of Côte d'Ivoire? 🇨🇮"},
]


def _tokenizer(template: str | None, **options: Any) -> Tokenizer:
    vocabulary = with_tokens(boundary_vocabulary(), ["<|im_start|>", "<|im_end|>"], 3)
    size = len(vocabulary["tokens"])
    metadata = prefixed(vocabulary | {"bos_token_id": size - 2, "eos_token_id": size - 1} | options)
    return tokenizer_from_gguf(metadata | ({CHAT_TEMPLATE: template} if template is not None else {}), Path("m.gguf"))


def test_chatml_text() -> None:
    text = render_chat(_tokenizer(CHATML), MESSAGES)
    assert text == (
        "<|im_start|>system\nBe <brief> & plain.<|im_end|>\n"
        "<|im_start|>user\nCapital of Côte d'Ivoire? 🇨🇮<|im_end|>\n<|im_start|>assistant\n"
    )


def test_generation_prompt_off() -> None:
    assert render_chat(_tokenizer(CHATML), MESSAGES[:1], add_generation_prompt=False).endswith("<|im_end|>\n")


def test_token_names_and_variables() -> None:
    template = "{{ bos_token }}|{{ eos_token }}|{{ tools[0].name }}"
    text = render_chat(_tokenizer(template), [], tools=[{"name": "f"}])
    assert text == "<|im_start|>|<|im_end|>|f"


def test_blocks_are_trimmed_as_authors_expect() -> None:
    template = "{% for m in messages %}\n    {% if true %}\n- {{ m }}\n    {% endif %}\n{% endfor %}"
    assert render_template(template, {"messages": ["a", "b"]}) == "- a\n- b\n"


def test_tojson_keeps_letters_and_angle_brackets() -> None:
    assert render_template("{{ x|tojson }}", {"x": {"k": "<é>"}}) == '{"k": "<é>"}'
    assert render_template("{{ x|tojson(indent=1) }}", {"x": [1]}) == "[\n 1\n]"


def test_loop_controls_and_generation_blocks() -> None:
    jumps = "{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}"
    template = "{% for i in range(9) %}" + jumps + "{{ i }}{% endfor %}"
    assert render_template(template + "{% generation %}!{% endgeneration %}", {}) == "013!"


def test_strftime_now_gives_a_year() -> None:
    assert render_template("{{ strftime_now('%Y') }}", {}).isdecimal()


def test_ids_parse_special_and_add_bos_once() -> None:
    tokenizer = _tokenizer("{{ bos_token }}a<|im_end|>", add_bos_token=True)
    bos, end = tokenizer.vocabulary.bos_id, tokenizer.vocabulary.eos_id
    once = tokenizer.encode_chat(render_chat(tokenizer, []))
    assert once == [bos, *tokenizer.encode("a", False), end]
    assert tokenizer.encode_chat("a<|im_end|>") == once


@pytest.mark.parametrize("template", [None, ""])
def test_missing_template_refused(template: str | None) -> None:
    with pytest.raises(ChatTemplateError, match=r"m\.gguf: tokenizer\.chat_template: the model has no chat template"):
        render_chat(_tokenizer(template), MESSAGES)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ lipsum.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{{ ''['__class__'] }}",
        "{{ ('%s' | attr('__class__')) }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{% set x = messages.__init__ %}",
    ],
)
def test_sandbox_escape_refused(template: str) -> None:
    with pytest.raises(ChatTemplateError, match="left its sandbox: access to"):
        render_template(template, {"messages": []})


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("{% for i in range(999999999) %}{% endfor %}", "OverflowError: Range too big"),
        ("{% for i in range(99999) %}{{ 'x' * 99 }}{% endfor %}", "output is longer than 4194304 characters"),
        ("{{ 'x' * n * n }}", "more than 512 MiB of memory"),
        ("{{ 'x'|center(n * n) }}", "more than 512 MiB of memory"),
        ("{% set a = namespace(x='xx') %}{% for i in range(64) %}{% set a.x = a.x ~ a.x %}{% endfor %}", "512 MiB"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ],
)
def test_greedy_template_refused(template: str, cause: str) -> None:
    with pytest.raises(ChatTemplateError, match=cause):
        render_template(template, {"n": 10**5})


def test_endless_template_is_ended() -> None:
    template = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(ChatTemplateError, match="used more than 1 s of processor time"):
        render_template(template, {}, cpu_seconds=1)


@pytest.mark.parametrize(
    ("template", "cause"),
    [
        ("a\n{% if %}", "does not compile, line 2"),
        ("{{ raise_exception('roles\nmust alternate') }}", "refused: roles must alternate"),
        ("{{ nothing.here }}", "UndefinedError: 'nothing' is undefined"),
        ("{% include '/etc/hostname' %}", "failed"),
    ],
)
def test_fault_is_one_line_that_names_the_cause(template: str, cause: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render_template(template, {})
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_message_that_json_cannot_carry_refused() -> None:
    with pytest.raises(ChatTemplateError, match="messages: a message that JSON cannot carry"):
        render_chat(_tokenizer(CHATML), [{"role": "user", "content": b"bytes"}])
