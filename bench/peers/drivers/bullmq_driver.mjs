// BullMQ: 200 jobs at once per process, completed ones removed, bulk by addBulk.

import { hit, load, main, range } from './driving.mjs'

const { Queue, Worker } = load('bullmq')

const OPTIONS = { removeOnComplete: true, removeOnFail: true }
let queue

function place(url) {
  const { hostname, port } = new URL(url)
  return { host: hostname, port: Number(port), maxRetriesPerRequest: null }
}

await main({
  measures: ['enqueue', 'bulk', 'keyed', 'bulk_keyed', 'drain', 'drain2', 'latency'],
  async open(url) {
    queue = new Queue('bench', { connection: place(url), defaultJobOptions: OPTIONS })
    await queue.waitUntilReady()
  },
  async enqueue(first, last) {
    for (let n = first; n < last; n += 1) await queue.add('noop', { n })
  },
  async keyed(first, last) {
    for (let n = first; n < last; n += 1) await queue.add('noop', { n }, { jobId: `key-${n}` })
  },
  async bulk(first, last) {
    await queue.addBulk(range(first, last).map((n) => ({ name: 'noop', data: { n } })))
  },
  async bulk_keyed(first, last) {
    await queue.addBulk(
      range(first, last).map((n) => ({ name: 'noop', data: { n }, opts: { jobId: `key-${n}` } })),
    )
  },
  async unsettled() {
    const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'prioritized')
    return Object.values(counts).reduce((total, count) => total + count, 0)
  },
  async work(url) {
    const worker = new Worker('bench', async (job) => hit(job.data.n), {
      connection: place(url),
      concurrency: 200,
    })
    await worker.waitUntilReady()
    await new Promise(() => {})
  },
})
