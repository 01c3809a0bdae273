// pg-boss: batches of 1,000 in bursts while batches come back full, woken by NOTIFY.

import { hit, load, main, range } from './driving.mjs'

const { PgBoss } = load('pg-boss')
const { Pool } = load('pg')

const QUEUE = 'bench'
let boss
let pool

async function start(url) {
  const started = new PgBoss({ connectionString: url, useListenNotify: true, max: 10 })
  started.on('error', console.error)
  await started.start()
  return started
}

await main({
  measures: ['enqueue', 'bulk', 'keyed', 'bulk_keyed', 'drain', 'drain2', 'latency'],
  async open(url) {
    pool = new Pool({ connectionString: url, max: 2 })
    boss = await start(url)
    await boss.createQueue(QUEUE, { notify: true })
  },
  async enqueue(first, last) {
    for (let n = first; n < last; n += 1) await boss.send(QUEUE, { n })
  },
  async keyed(first, last) {
    for (let n = first; n < last; n += 1)
      await boss.send(QUEUE, { n }, { singletonKey: `key:${n}`, singletonSeconds: 86400 })
  },
  async bulk(first, last) {
    await boss.insert(
      QUEUE,
      range(first, last).map((n) => ({ data: { n } })),
    )
  },
  async bulk_keyed(first, last) {
    await boss.insert(
      QUEUE,
      range(first, last).map((n) => ({
        data: { n },
        singletonKey: `key:${n}`,
        singletonSeconds: 86400,
      })),
    )
  },
  async unsettled() {
    const { rows } = await pool.query(
      "select count(*)::int as left from pgboss.job where name = $1 and state < 'completed'",
      [QUEUE],
    )
    return rows[0].left
  },
  async work(url, processes, latency) {
    boss = await start(url)
    const batchSize = latency ? 1 : 1000
    const options = { batchSize, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }
    await boss.work(QUEUE, options, async (jobs) => {
      for (const { data } of jobs) hit(data.n)
    })
  },
})
