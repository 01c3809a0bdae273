// graphile-worker: local queue of 2,000, 200 jobs at once, completions batched. For latency its
// defaults, which are faster there.

import { hit, load, main, range } from './driving.mjs'

const { Logger, makeWorkerUtils, run } = load('graphile-worker')
const { Pool } = load('pg')

const quiet = new Logger(() => () => {})
let utils
let pool

const job = (n, options) => ({ identifier: 'noop', payload: { n }, ...options })

await main({
  measures: ['enqueue', 'bulk', 'keyed', 'bulk_keyed', 'drain', 'drain2', 'latency'],
  async open(url) {
    pool = new Pool({ connectionString: url, max: 4 })
    utils = await makeWorkerUtils({ pgPool: pool, logger: quiet })
    await utils.migrate()
  },
  async enqueue(first, last) {
    for (let n = first; n < last; n += 1) await utils.addJob('noop', { n })
  },
  async keyed(first, last) {
    for (let n = first; n < last; n += 1)
      await utils.addJob('noop', { n }, { jobKey: `key:${n}` })
  },
  async bulk(first, last) {
    await utils.addJobs(range(first, last).map((n) => job(n)))
  },
  async bulk_keyed(first, last) {
    await utils.addJobs(range(first, last).map((n) => job(n, { jobKey: `key:${n}` })))
  },
  async unsettled() {
    const { rows } = await pool.query('select count(*)::int as left from graphile_worker.jobs')
    return rows[0].left
  },
  async work(url, processes, latency) {
    const worker = latency
      ? { concurrentJobs: 4, maxPoolSize: 10 }
      : {
          concurrentJobs: 200,
          maxPoolSize: 10,
          localQueue: { size: 2000 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        }
    const runner = await run({
      preset: { worker: { connectionString: url, logger: quiet, ...worker } },
      taskList: { noop: ({ n }) => hit(n) },
    })
    await runner.promise
  },
})
