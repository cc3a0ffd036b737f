"""Chat: messages to prompt by the template that came with the model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.tokenizer.errors import ChatTemplateError
from pipeline.tokenizer.render import MEMORY_BYTES
from pipeline.tokenizer.tokenizer import CHAT_TEMPLATE, Tokenizer

CPU_SECONDS = 5
# Waiting time on a busy machine; the limit that counts is the one on the processor's time.
WALL_SECONDS = 60
_SCRIPT = Path(__file__).with_name("render.py")


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    add_generation_prompt: bool = True,
    **variables: Any,
) -> str:
    """The text of a conversation as the model was trained to see it.

    Parameters
    ----------
    messages : `{"role": "user", "content": "..."}` and so on, values that JSON can carry
    add_generation_prompt : end with the beginning of the assistant's answer
    variables : what else the template reads, such as `tools` or `enable_thinking`

    Raises
    ------
    ChatTemplateError : there is no template; it does not compile, refuses the messages, tries to leave its sandbox, or
        wants too much time, memory or output.
    """
    if not tokenizer.chat_template:
        raise ChatTemplateError("the model has no chat template", file=tokenizer.file, where=CHAT_TEMPLATE)
    vocabulary = tokenizer.vocabulary
    names = {"bos_token": tokenizer.token(vocabulary.bos_id), "eos_token": tokenizer.token(vocabulary.eos_id)}
    fixed = {"messages": list(messages), "add_generation_prompt": add_generation_prompt}
    try:
        return render_template(tokenizer.chat_template, {**names, **variables, **fixed})
    except ChatTemplateError as error:
        error.file = tokenizer.file
        raise


def render_template(source: str, variables: Mapping[str, Any], cpu_seconds: int = CPU_SECONDS) -> str:
    """Render in a process of its own; see `render.py`. Raises ChatTemplateError."""
    try:
        request = json.dumps({"template": source, "variables": dict(variables), "cpu_seconds": cpu_seconds})
    except (TypeError, ValueError) as error:
        raise ChatTemplateError(f"a message that JSON cannot carry: {error}", where="messages") from None
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(_SCRIPT)], input=request, capture_output=True, text=True, timeout=WALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ChatTemplateError(f"did not end within {WALL_SECONDS} s", where=CHAT_TEMPLATE) from None
    answer = _answer(done.stdout)
    if "text" in answer:
        return str(answer["text"])
    raise ChatTemplateError(_cause(answer, done, cpu_seconds), where=CHAT_TEMPLATE)


def _answer(output: str) -> dict[str, Any]:
    try:
        answer = json.loads(output)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _cause(answer: Mapping[str, Any], done: subprocess.CompletedProcess[str], cpu_seconds: int) -> str:
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"used more than {cpu_seconds} s of processor time"
    kind, message = answer.get("error"), answer.get("message")
    causes = {
        None: f"the renderer ended with status {done.returncode}: {done.stderr.strip()[-200:]}",
        "MemoryError": f"used more than {MEMORY_BYTES >> 20} MiB of memory",
        "SecurityError": f"left its sandbox: {message}",
        "TemplateSyntaxError": f"does not compile, line {answer.get('line')}: {message}",
        "TemplateError": f"refused: {message}",
    }
    return causes.get(kind, f"failed: {kind}: {message}")
