#!/bin/sh
# Let the server push the jobs of a queue to a receiver, such as receive.py or receive.mjs.
# The key needs the scope admin. A receiver that is not on a public address must be allowed
# where the server runs, with ONCELY_PUSH_ALLOW.
#
# Run: ONCELY_SERVER=... ONCELY_API_KEY=... ONCELY_PUSH_SECRET=whsec_... \
#      sh examples/http/push.sh http://127.0.0.1:9000/
set -eu

curl --fail-with-body --silent --show-error -X PUT "$ONCELY_SERVER/v1/queues/payments" \
  -H "Authorization: Bearer $ONCELY_API_KEY" \
  -H "Content-Type: application/json" \
  -d "{
    \"push\": { \"url\": \"$1\", \"secret\": \"$ONCELY_PUSH_SECRET\", \"mode\": \"sync\" },
    \"concurrency\": 8
  }"
echo
