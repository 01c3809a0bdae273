"""Publish a job over HTTP, with Python's standard library alone. Repeated until it is known.

Run: ONCELY_SERVER=http://127.0.0.1:8000 ONCELY_API_KEY=... python publish.py 9482 4999
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request

WAITS_SECONDS = (0.2, 1, 3, 10)


def publish(order_id: str, amount_cents: int) -> dict:
    body = {
        "payload": {"orderId": order_id, "amountCents": amount_cents},
        # Made before the first try and the same in each: whichever arrived, there is one job.
        "idempotencyKey": f"order:{order_id}:charge",
    }
    request = urllib.request.Request(
        os.environ["ONCELY_SERVER"] + "/v1/queues/payments/jobs",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['ONCELY_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    for seconds in (*WAITS_SECONDS, None):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                problem = json.load(error)
            if not problem["retryable"] or seconds is None:
                raise SystemExit(f"{problem['code']}: {problem['detail']}") from None
        except (OSError, http.client.HTTPException) as error:  # nobody knows whether it arrived
            if seconds is None:
                raise SystemExit(f"no answer: {error}") from None
        time.sleep(seconds)
    raise AssertionError


if __name__ == "__main__":
    print(json.dumps(publish(sys.argv[1], int(sys.argv[2]))))
