// Publish a job over HTTP from Node, without any package. Repeated until it is known.
//
// Run: ONCELY_SERVER=http://127.0.0.1:8000 ONCELY_API_KEY=... node examples/http/publish.mjs 9482 4999

const waitsMs = [200, 1_000, 3_000, 10_000];

async function publish(orderId, amountCents) {
  const body = JSON.stringify({
    payload: { orderId, amountCents },
    // Made before the first try and the same in each: whichever arrived, there is one job.
    idempotencyKey: `order:${orderId}:charge`,
  });
  for (let tries = 0; ; tries += 1) {
    let told;
    try {
      const answer = await fetch(`${process.env.ONCELY_SERVER}/v1/queues/payments/jobs`, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${process.env.ONCELY_API_KEY}`,
          "Content-Type": "application/json",
        },
        body,
        signal: AbortSignal.timeout(10_000),
      });
      const said = await answer.json();
      if (answer.ok) return said;
      told = `${said.code}: ${said.detail}`;
      if (!said.retryable) throw new Refused(told);
    } catch (error) {
      if (error instanceof Refused) throw error;
      told ??= `no answer: ${error.message}`; // nobody knows whether it arrived
    }
    if (tries === waitsMs.length) throw new Refused(told);
    await new Promise((resolve) => setTimeout(resolve, waitsMs[tries]));
  }
}

class Refused extends Error {}

try {
  const [orderId, amountCents] = process.argv.slice(2);
  console.log(JSON.stringify(await publish(orderId, Number(amountCents))));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
