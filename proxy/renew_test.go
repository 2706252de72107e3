package proxy

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/snapshot"
	"github.com/listproxy/listproxy/test/expect"
)

// TestRenewedKeepsItsRoom: a streaming list that has waited for room, and whose state is then too old,
// gets a newer state in the same room. It does not wait again behind those who came later.
func TestRenewedKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 1_240_000
		w := newModelWorld(t, func(c *snapshot.Config) { c.Bytes = 1_900_000 }) // history is cut behind each change
		w.bulk = randomText(600 << 10)
		var err error
		w.handler.Inflight, err = inflight.New(inflight.Config{Requests: 10, Bytes: room, Wait: 10 * time.Second})
		expect.NoError(t, err)
		w.load(t)
		half, ok := w.handler.Inflight.TryAdmitBody(inflight.ShareKey{1}, room/2)
		rest, also := w.handler.Inflight.TryAdmitBody(inflight.ShareKey{2}, room/2)
		if !ok || !also {
			t.Fatal("no room for others' bodies")
		}
		defer rest.Release()
		const query = "watch=true&timeoutSeconds=3600&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
		first := &told{ResponseRecorder: httptest.NewRecorder()}
		waiting := w.open(t, first, query, "identity")
		for range 3 {
			time.Sleep(time.Second)
			w.write(1)
		}
		synctest.Wait()
		later := w.open(t, &slowReader{httptest.NewRecorder(), 25 * time.Second}, query, "identity")
		time.Sleep(time.Second)
		half.Release()
		time.Sleep(time.Second)
		synctest.Wait()
		defer func() { // the other's state is read by then
			time.Sleep(time.Minute)
			waiting.leave()
			later.leave()
			synctest.Wait()
		}()
		if !strings.Contains(first.String(), "initial-events-end") {
			t.Errorf("it has code %d, and %d bytes are told", first.Code, len(first.String()))
		}
	})
}
