# SPDX-License-Identifier: Apache-2.0
"""The web application, for uvicorn: POST 512 numbers, as bytes of float32, and get scores as JSON. It has no weights."""

import json
from typing import Any

import numpy as np

from arraybridge import Broker

broker = Broker(client="web")  # of this worker


async def app(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    answer = await broker.acall("predict", np.frombuffer(body, "float32"), timeout=30)
    text = json.dumps({"scores": answer["scores"].tolist(), "generation": answer["generation"]})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": text.encode()})
