"""The HTTP face: `oncely serve`.

How it is put together, for whoever adds a call:

- `endpoint.py` has `Endpoint`, one entry of the table: method, path, scope, the types of query,
  body and answer, the refusals that are its own, and the function that does it. A module of calls
  (such as `publish.py`) ends in a tuple `ENDPOINTS`; `table.py` puts them together. Routing,
  `/openapi.json`, the docs and the tests of scopes all walk that one table, so nothing else has to
  be told.
- `types.py` has what travels, as msgspec structs: `Body` (a request; unknown fields are refused)
  and `Shown` (an answer). Fields are `snake_case` here and `camelCase` on the wire. The same types
  validate and describe; a bound is said once, with `Annotated[int, Meta(ge=1)]`.
- A function of a call is `async def verb(call: Call[BodyType, QueryType]) -> Answer`. `call.app`
  is the store, `call.body` and `call.query` are checked already, `call.path["queue"]` is from the
  path. The scope was checked before, and so was the queue of a path that names one; a path that
  names a job is checked with `await call.see(job_id)`, which answers 404 for what the token may not
  see. `call.service.stopping` is set when the server is told to stop: whoever waits ends its wait.
- Refusals are `problem.Refused(code, detail)`, with codes from `problem.PROBLEMS`. Errors of Oncely
  become refusals by `problem.of`: let them rise.
"""
