#!/bin/sh
# Publish a job with curl. The key names what should happen once, so the call can be repeated.
#
# Run: ONCELY_SERVER=http://127.0.0.1:8000 ONCELY_API_KEY=... sh examples/http/publish.sh
set -eu

curl --fail-with-body --silent --show-error -X POST "$ONCELY_SERVER/v1/queues/payments/jobs" \
  -H "Authorization: Bearer $ONCELY_API_KEY" \
  -H "Content-Type: application/json" \
  -d '{
    "payload": { "orderId": "9482", "amountCents": 4999 },
    "idempotencyKey": "order:9482:charge"
  }'
echo
