"""What a row tells the scripted vendor to do, and the answers that come of it. No sockets here.

A row's script is the first `[[...]]` in its last user message: words, and key=value pairs (values with blanks in double
quotes). Without one the answer is a 200 whose text is the last word of that message.

    status=429 code=C type=T param=P message="..."   an error object with this status
    ra=3 ra_ms=250 header="Name: value|Other: value"  headers (ra is Retry-After as written)
    times=2                     only the first two attempts behave so, then as without a script
    sleep=0.5 hold              answers later; only when the test releases
    finish=length content=null|empty|blank|list|TEXT usage=none|zero|floats|IN,OUT
    say="TEXT"                  the answer's text, with ' in place of "
    then="A|B"                  and those of the requests that ask for it again, with an answer in them; a script of its
                                own in one of them ([status=500]) is obeyed
    body=html|empty|nochoices|nochoicekey|cut|array|badutf8|surrogate|sse|wrapped|mistral|detail|redirect
    error200 toolcall refusal   a 200 with an error object, a tool call, a refusal
    drop=before|after reset halfclose hang            no answer at all
    stream=hold|cut|error|BYTES  to a request that asks for a stream, a word an event: waits after the first until the
                                test releases; breaks off; ends with an error; has so much text
    drip=0.01 blank=3 chunked close big=20000000      a well-formed answer in an awkward way
"""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any

import msgspec

_SCRIPT = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_WORD = re.compile(r'(\w+)(?:=(?:"([^"]*)"|(\S+)))?')

Script = dict[str, str]


class Message(msgspec.Struct, gc=False):
    role: str = ""
    content: str | list[Any] | None = None


class Request(msgspec.Struct, gc=False):
    model: str = ""
    messages: list[Message] = []
    input: Any = None
    prompt: Any = None
    encoding_format: str = ""
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None


REQUESTS = msgspec.json.Decoder(Request)


def read_text(request: Request) -> str:
    """The last user message, or the input or prompt of an endpoint without messages."""
    for message in reversed(request.messages):
        if message.role == "user":
            if isinstance(message.content, list):
                return "".join(part.get("text", "") for part in message.content if isinstance(part, dict))
            return message.content or ""
    for asked in (request.input, request.prompt):
        if isinstance(asked, str):
            return asked
    return ""


ASKED_AGAIN = "This answer does not match the JSON schema"


def first_text(request: Request) -> str:
    """Of a request that asks for an answer again: what was asked first; empty for any other."""
    inputs = request.input if isinstance(request.input, list) else []
    turns: list[Any] = request.messages or [turn for turn in inputs if isinstance(turn, dict)]
    if isinstance(request.prompt, str) and ASKED_AGAIN in request.prompt:
        return request.prompt
    found = [turn if isinstance(turn, Message) else Message(turn["role"], turn["content"]) for turn in turns]
    if "assistant" not in [turn.role for turn in found]:
        return ""
    return next(str(turn.content) for turn in found if turn.role == "user")


def script_again(first: str, time: int) -> Script:
    """What becomes of a request that asks for an answer again, the time-th of its row (from 0)."""
    words = read_script(first).get("then", "").split("|")
    said = words[min(time, len(words) - 1)]
    return read_script(f"[{said}]") if said.startswith("[") else {"say": said}


def read_script(text: str) -> Script:
    found = _SCRIPT.search(text) if "[[" in text else None
    if found is None:
        return {}
    return {name: quoted or plain or "" for name, quoted, plain in _WORD.findall(found.group(1))}


def last_word(text: str) -> str:
    return text.rsplit(None, 1)[-1] if text and not text.isspace() else "ok"


def plain_body(model: str, content: str, number: int) -> bytes:
    """The ordinary answer, spliced rather than encoded: it is sent a hundred thousand times."""
    return (
        b'{"id":"chatcmpl-%d","object":"chat.completion","created":1764400000,"model":%b,"choices":[{"index":0,"message":'
        b'{"role":"assistant","content":%b},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}'
        % (number, msgspec.json.encode(model), msgspec.json.encode(content))
    )


def endpoint_body(path: str, request: Request, content: str) -> bytes:
    """The ordinary answer of an endpoint that is not chat. An embedding begins with the place of its input."""
    model = request.model
    if path.endswith("/embeddings"):
        inputs = len(request.input) if isinstance(request.input, list) else 1
        vectors: list[Any] = [[0.25 + place, -0.5] for place in range(inputs)]
        if request.encoding_format == "base64":
            vectors = [base64.b64encode(struct.pack("<2f", *vector)).decode() for vector in vectors]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return _dump(
            {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": 10, "total_tokens": 10}}
        )
    if path.endswith("/completions"):
        choices = [{"index": 0, "text": content, "logprobs": None, "finish_reason": "stop"}]
        counts = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        return _dump({"object": "text_completion", "model": model, "choices": choices, "usage": counts})
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": content}]}
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    return _dump({"object": "response", "status": "completed", "model": model, "output": [item], "usage": usage})


def stream_events(request: Request, script: Script) -> list[bytes]:
    """The events of the answer to a request that asks for a stream, the last one being the end."""
    text = read_text(request)
    words = [last_word(text)] if not script else text.split("]]")[-1].split() or ["ok"]
    shape = script.get("stream", "")
    if shape.isdecimal():
        words = ["x" * 1000] * (int(shape) // 1000)
    chunk: dict[str, object] = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1764400000}
    chunk["model"] = request.model
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}, *[_delta(word) for word in words]]
    events: list[dict[str, object]] = [chunk | {"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    if shape == "error":
        error = {"message": "scripted failure", "type": "server_error", "param": None, "code": "server_error"}
        return [_event(event) for event in [*events, {"error": error}]]
    events.append(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (request.stream_options or {}).get("include_usage"):
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
        events.append(chunk | {"choices": [], "usage": usage})
    return [*map(_event, events), b"data: [DONE]\n\n"]


def _delta(word: str) -> dict[str, object]:
    return {"content": word}


def _event(value: object) -> bytes:
    return b"data: " + _dump(value) + b"\n\n"


def scripted_body(script: Script, text: str, model: str) -> tuple[int, bytes]:
    """(status, body) of a row with a script."""
    shape = script.get("body", "")
    status = int(script.get("status", "200"))
    if shape in _SHAPES:
        return status, _SHAPES[shape]
    if shape == "redirect":
        return int(script.get("status", "307")), b""
    if "error200" in script:
        return 200, _error(script, int(script.get("code", "0")) if script.get("code", "").isdecimal() else None)
    if status >= 300:
        return status, _failure(script, shape)
    return status, _success(script, shape, text=text, model=model)


def scripted_headers(script: Script) -> list[str]:
    headers = []
    if "ra" in script:
        headers.append(f"Retry-After: {script['ra']}")
    if "ra_ms" in script:
        headers.append(f"retry-after-ms: {script['ra_ms']}")
    if script.get("body") == "redirect":
        headers.append("Location: https://elsewhere.example/v1/chat/completions?token=hidden")
    headers += [line.strip() for line in script.get("header", "").split("|") if line.strip()]
    return headers


def _error(script: Script, number: int | None = None) -> bytes:
    error: dict[str, object] = {
        "message": script.get("message", "scripted failure"),
        "type": script.get("type", "scripted_error"),
        "param": script.get("param"),
        "code": number if number is not None else script.get("code"),
    }
    return _dump({"error": error})


def _failure(script: Script, shape: str) -> bytes:
    message, code = script.get("message", "scripted failure"), script.get("code")
    if shape == "wrapped":
        return _dump([{"error": {"code": int(script["status"]), "message": message, "status": code}}])
    if shape == "mistral":
        return _dump({"object": "error", "message": message, "type": script.get("type"), "param": None, "code": code})
    if shape == "detail":
        return _dump({"detail": [{"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": message}]})
    return _error(script)


def _success(script: Script, shape: str, *, text: str, model: str) -> bytes:
    message: dict[str, object] = {"role": "assistant", "content": _content(script, text)}
    finish: str | None = script.get("finish", "stop")
    if "toolcall" in script:
        call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        message |= {"content": None, "tool_calls": [call]}
        finish = "tool_calls"
    if "refusal" in script:
        message |= {"content": None, "refusal": "I cannot help with that."}
    body: dict[str, object] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
    match script.get("usage"):
        case "none":
            del body["usage"]
        case "zero":
            body["usage"] = {"prompt_tokens": 0, "completion_tokens": 0}
        case "floats":
            body["usage"] = {"prompt_tokens": 10.0, "completion_tokens": 2.0}
        case str(counts) if "," in counts:
            prompt, completion = map(int, counts.split(","))
            body["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        case _:
            pass
    match shape:
        case "nochoices":
            body["choices"] = []
        case "nochoicekey":
            body = {"status": "ok"}
        case "array":
            return _dump([body])
        case "cut":
            return _dump(body)[:-20]
        case "badutf8":
            return _dump(body).replace(last_word(text).encode(), b"h\xe4lf \xf0\x9f\x98", 1)
        case "surrogate":
            return _dump(body).replace(last_word(text).encode(), b"cut \\ud83d", 1)
        case "sse":
            return b'data: {"choices":[{"delta":{"content":"o"}}]}\n\ndata: ' + _dump(body) + b"\n\ndata: [DONE]\n\n"
        case _:
            pass
    return _dump(body)


def _content(script: Script, text: str) -> object:
    if "big" in script:
        return "x" * int(script["big"])
    if "say" in script:
        return script["say"].replace("'", '"')
    match script.get("content"):
        case None:
            return last_word(text)
        case "null":
            return None
        case "empty":
            return ""
        case "blank":
            return " \n"
        case "list":
            return [{"type": "text", "text": last_word(text)}]
        case other:
            return other


def _dump(value: object) -> bytes:
    return json.dumps(value).encode()


_SHAPES: dict[str, bytes] = {"html": b"<html><body>502 Bad Gateway</body></html>", "empty": b""}
