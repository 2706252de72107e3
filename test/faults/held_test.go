package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/process"
)

const (
	mib = 1 << 20
	// perConnection is what listproxy and the chart reckon with for a connection.
	perConnection = 128 << 10
	// perAnswer is the same for a request in flight that nobody reads on.
	perAnswer = 320 << 10
	// perWatch is four times what a forwarded watch takes.
	perWatch = 256 << 10
	// spare is for what the first of them make listproxy take, once.
	spare = 8 << 20
	// stillFor is how often in a row listproxy answers that nothing has moved, before that is believed.
	stillFor = 25
)

// TestHeldMemory: what an idle connection, a forwarded watch and an answer that nobody reads make
// listproxy take has a bound, with which the chart reckons. The hop answers in kube-apiserver's place.
func TestHeldMemory(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	leave, err := quiet.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	plain, err := buildPlain() // the race detector takes memory of its own
	expect.NoError(t, err)
	var written atomic.Int64
	for name, tt := range map[string]struct {
		n, each int
		request string
		answer  func(w http.ResponseWriter, r *http.Request) // nil: listproxy itself answers
	}{
		"idle connections": {n: 100, each: perConnection, request: "OPTIONS *"},
		"forwarded watches": {
			n: 300, each: perConnection + perWatch, request: "GET /api/v1/configmaps?labelSelector=held&watch=true",
			answer: func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
		},
		"answers that nobody reads": {
			n: 200, each: perConnection + perAnswer, request: "GET /openapi/v2",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				part := bytes.Repeat([]byte("a"), 4<<10)
				for range 4 * mib / len(part) {
					if _, err := w.Write(part); err != nil {
						return
					}
					written.Add(1)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived atomic.Int64
			between := hop.Run(t, quiet.plane.URL(), quiet.plane.CA(), hop.Odd{})
			between.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if hop.Own(r) || !strings.Contains(tt.request, r.URL.Path) {
					return false
				}
				arrived.Add(1)
				tt.answer(w, r)
				return true
			})
			p := harness.RunProxy(t, harness.ProxyOptions{ // without the log of requests, which is kept in memory here
				Upstream: between.RESTConfig(quiet.plane.RESTConfig(controlplane.Feed)), Binary: plain, Args: []string{"--eager", "configmaps", "--log-level", "info"},
			})
			before, _, err := process.Memory(p.PID())
			expect.NoError(t, err)
			for i := range tt.n {
				conn, err := dial(p.Address(), p.CA(), i)
				expect.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", tt.request, quiet.plane.Token(controlplane.Admin))
				if err == nil && tt.answer == nil {
					_, err = io.ReadAtLeast(conn, make([]byte, 1024), 1)
				}
				expect.NoError(t, err)
			}
			poll.Until(t, patience, "all have arrived", func() bool { return tt.answer == nil || int(arrived.Load()) == tt.n })
			var peak, last, moved int64
			same := 0
			poll.Until(t, patience, "nothing moves any more", func() bool {
				_, peak, err = process.Memory(p.PID())
				expect.NoError(t, err)
				now := written.Load()
				if same++; peak > last || now != moved {
					last, moved, same = peak, now, 0
				}
				return same >= stillFor
			})
			more, reckoned := float64(peak-before), float64(tt.n*tt.each+spare)
			t.Logf("%d: %d MiB resident, %d before; each %.1f KiB", tt.n, peak>>20, before>>20, more/float64(tt.n)/1024)
			if more > reckoned {
				t.Errorf("they take %.1f MiB, more than the %.1f that are reckoned with", more/mib, reckoned/mib)
			}
		})
	}
}
