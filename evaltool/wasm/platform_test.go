package wasm_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

func TestAsyncioRunsWithTimers(t *testing.T) {
	for _, c := range []struct{ code, value string }{
		{"async def main():\n  await asyncio.sleep(.01)\n  return 5\nasyncio.run(main())", "5"},
		{"async def one(n):\n  await asyncio.sleep(n / 100)\n  return n\nasync def main(): return await asyncio.gather(*map(one, (3, 1, 2)))\nasyncio.run(main())", "[3, 1, 2]"},
		{"async def main():\n  async with asyncio.TaskGroup() as group:\n    tasks = [group.create_task(asyncio.sleep(.01, n)) for n in range(3)]\n  return [t.result() for t in tasks]\nasyncio.run(main())", "[0, 1, 2]"},
		{"async def main():\n  try:\n    async with asyncio.timeout(.02): await asyncio.sleep(5)\n  except TimeoutError: return 'late'\nasyncio.run(main())", "'late'"},
		{"async def main():\n  queue = asyncio.Queue()\n  async def put():\n    for n in range(3): await queue.put(n)\n  task = asyncio.create_task(put())\n  return [await queue.get() for _ in range(3)]\nasyncio.run(main())", "[0, 1, 2]"},
		{"async def main(): return await asyncio.to_thread(lambda a: a + 1, 4), await asyncio.get_running_loop().run_in_executor(None, len, 'abc')\nasyncio.run(main())", "(5, 3)"},
		{"async def main():\n  try: await asyncio.to_thread(lambda: 1 / 0)\n  except ZeroDivisionError as e: return str(e)\nasyncio.run(main())", "'division by zero'"},
		{"with asyncio.Runner() as runner: x = runner.run(asyncio.sleep(0, 1)), runner.run(asyncio.sleep(0, 2))\nx", "(1, 2)"},
		{"loop = asyncio.new_event_loop()\ntry: x = loop.run_until_complete(asyncio.sleep(0, 3))\nfinally: loop.close()\nx", "3"},
		{"async def numbers():\n  for n in range(2): yield n\nasync def main(): return [n async for n in numbers()]\nasyncio.run(main())", "[0, 1]"},
		{"async def main():\n  loop = asyncio.get_running_loop()\n  future = loop.create_future()\n  loop.call_later(.01, future.set_result, 'x')\n  return await future\nasyncio.run(main())", "'x'"},
	} {
		resp := run(t, "import asyncio\n"+c.code)
		require.Equal(t, evaltool.StatusExited, resp.Status, "%s\n%s", c.code, resp.Stderr)
		assert.Equal(t, c.value, *resp.Value, c.code)
		assert.Empty(t, resp.Stderr, c.code)
	}
	resp := run(t, "import asyncio\nasync def main(): await asyncio.Event().wait()\nasyncio.run(main())")
	assert.Contains(t, resp.Stderr, "RuntimeError: what is awaited can never happen")
	s := engine(t).Session(nil)
	for range 2 { // the loop of the names that stay
		resp, err := s.Evaluate(t.Context(), evaltool.Request{Code: "import asyncio\nx = asyncio.run(asyncio.sleep(0, 7))\nawait asyncio.sleep(0, x)", Sandbox: evaltool.SandboxWasm, Kept: true, Timeout: 60e9})
		require.NoError(t, err)
		assert.Equal(t, "7", *resp.Value, resp.Stderr)
	}
}

func TestProcessorTimeIsInSeconds(t *testing.T) {
	code := `import time, os
a, b, c = time.process_time(), time.process_time_ns(), os.times()
time.sleep(2)
for _ in range(10): time.monotonic()
a, b, c = time.process_time() - a, time.process_time_ns() - b, [y - x for x, y in zip(c, os.times())]
print(a, b, c)
0 < a < .1, 0 < b < 1e8, 0 < c[0] < .1, c[1:4], 2 < c[4] < 2.1, 0 <= time.process_time() < 1, os.times().user < 1`
	resp := run(t, code)
	assert.Equal(t, "(True, True, True, [0.0, 0.0, 0.0], True, True, True)", *resp.Value, resp.Stdout)
}

// TestStrftimeKnowsTheFormatsOfOtherLibraries compares with Python on the host, whose C library is glibc.
func TestStrftimeKnowsTheFormatsOfOtherLibraries(t *testing.T) {
	code := `import time, datetime, string
t = (2024, 3, 5, 14, 7, 9, 1, 65, 0)
formats = ["%" + c for c in string.ascii_letters if c not in "Zcxr"] + [
  "", "%", "x%", "%5", "%é", "é%d", "%-d %_d %05d %^a %#a %^B %#p", "%Y-%m-%d %P", "%k|%l|%-k", "%Q %d", "%:z", "%10Y", "%%P", "%5%", "%Od", "%5Q %08k %_5d %6B %-5m %09H", "%\n%d", "%Y" * 200]
result = [(f, time.strftime(f, t)) for f in formats]
moment = datetime.datetime(2024, 3, 5, 4, 7, 9, 1234)
result += [moment.strftime("%k:%M %P %f"), f"{moment:%I%P}", datetime.date(2024, 3, 5).strftime("%-d.%-m."), datetime.time(3).strftime("%l %Q")]
for bad in ((5,), ("%d", 5), ("%d", (1,)), ("%d", (2024, 13, 1, 0, 0, 0, 0, 1, 0)), ("%d\0",)):
  try: result.append(time.strftime(*bad))
  except Exception as e: result.append(type(e).__name__)
`
	want, err := exec.Command("python3", "-c", code+"print(ascii(result))").Output()
	require.NoError(t, err)
	assert.Equal(t, string(want), run(t, code+"print(ascii(result))").Stdout)
	assert.NotEmpty(t, *run(t, "import time\ntime.strftime('%P %H')").Value)
}
