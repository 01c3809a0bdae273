// Receive pushed jobs in Node, without any package: each order is charged once.
//
// Run: ONCELY_PUSH_SECRET=whsec_... node examples/http/receive.mjs charges 9000

import { createHmac, timingSafeEqual } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const [folder, port] = process.argv.slice(2);
const secret = Buffer.from(process.env.ONCELY_PUSH_SECRET.replace(/^whsec_/, ""), "base64");
const bodyLimit = 2 * 1024 * 1024;
mkdirSync(folder, { recursive: true });

// Whether the server sent it, and not long ago: an old request could be somebody's recording.
function isSigned(headers, body) {
  const sent = headers["webhook-timestamp"] ?? "";
  if (!/^\d+$/.test(sent) || Math.abs(Date.now() / 1000 - Number(sent)) > 300) return false;
  const wanted = createHmac("sha256", secret)
    .update(`${headers["webhook-id"]}.${sent}.`)
    .update(body)
    .digest();
  return (headers["webhook-signature"] ?? "").split(" ").some((each) => {
    const given = Buffer.from(each.replace(/^v1,/, ""), "base64");
    return each.startsWith("v1,") && given.length === wanted.length && timingSafeEqual(given, wanted);
  });
}

// Delivered twice, charged once: the file is the charge, and can be made only once.
function charge(job) {
  const { orderId, amountCents } = job.payload;
  if (!/^[0-9]{1,18}$/.test(orderId) || !Number.isSafeInteger(amountCents)) throw new TypeError();
  const path = join(folder, `${orderId}.json`);
  try {
    writeFileSync(path, JSON.stringify({ cents: amountCents, jobId: job.id }), { flag: "wx" });
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
  }
}

function handle(headers, body) {
  if (!isSigned(headers, body)) return 401;
  try {
    charge(JSON.parse(body.toString()));
  } catch (error) {
    // No repeat would change the first: the job fails at once. The second comes back later.
    return error instanceof TypeError || error instanceof SyntaxError ? 422 : 503;
  }
  return 204;
}

const server = createServer(async (request, response) => {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > bodyLimit) return response.writeHead(413, { Connection: "close" }).end();
    parts.push(part);
  }
  return response.writeHead(handle(request.headers, Buffer.concat(parts))).end();
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/`);
});
