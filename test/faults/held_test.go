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
	// perConnection is the memory of a connection that listproxy and the chart assume.
	perConnection = 128 << 10
	// perAnswer is the memory of a forwarded answer that the client stops reading, as they assume it.
	perAnswer = 320 << 10
	// perWatch is four times the memory of a forwarded watch.
	perWatch = 256 << 10
	// firstUse is memory that the first requests make listproxy take, once.
	firstUse = 8 << 20
	// stableSamples is the number of samples in a row that must show no growth before the measurement ends.
	stableSamples = 25
)

// TestHeldMemory: an idle connection, a forwarded watch and a forwarded answer that the client stops reading take no more
// memory than the chart assumes. The hop answers in kube-apiserver's place.
func TestHeldMemory(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	leave, err := quietStage.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	program, err := faultCase{withoutRace: true}.buildProgram("") // the race detector takes memory of its own
	expect.NoError(t, err)
	var chunksWritten atomic.Int64
	for name, tt := range map[string]struct {
		clients, bytesEach int
		request            string
		answer             func(w http.ResponseWriter, r *http.Request) // nil: listproxy itself answers
	}{
		"idle connections": {clients: 100, bytesEach: perConnection, request: "OPTIONS *"},
		"forwarded watches": {
			clients: 300, bytesEach: perConnection + perWatch, request: "GET /api/v1/configmaps?labelSelector=held&watch=true",
			answer: func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
		},
		"answers that nobody reads": {
			clients: 200, bytesEach: perConnection + perAnswer, request: "GET /openapi/v2",
			answer: func(w http.ResponseWriter, _ *http.Request) {
				chunk := bytes.Repeat([]byte("a"), 4<<10)
				for range 4 * mib / len(chunk) {
					if _, err := w.Write(chunk); err != nil {
						return
					}
					chunksWritten.Add(1)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived atomic.Int64
			between := hop.Run(t, quietStage.plane.URL(), quietStage.plane.CA(), hop.Odd{})
			between.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if hop.Own(r) || !strings.Contains(tt.request, r.URL.Path) {
					return false
				}
				arrived.Add(1)
				tt.answer(w, r)
				return true
			})
			p := harness.RunProxy(t, harness.ProxyOptions{
				Upstream: between.RESTConfig(quietStage.plane.RESTConfig(controlplane.Feed)), Binary: program,
				Args: []string{"--eager", "configmaps", "--log-level", "info"}, // no log of requests, which this process would keep
			})
			before, _, err := process.Memory(p.PID())
			expect.NoError(t, err)
			for i := range tt.clients {
				conn, err := dial(p.Address(), p.CA(), i)
				expect.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
					tt.request, quietStage.plane.Token(controlplane.Admin))
				if err == nil && tt.answer == nil {
					_, err = io.ReadAtLeast(conn, make([]byte, 1024), 1)
				}
				expect.NoError(t, err)
			}
			poll.Until(t, patience, "all requests have arrived", func() bool {
				return tt.answer == nil || int(arrived.Load()) == tt.clients
			})
			var peak, lastPeak, lastChunks int64
			stable := 0
			poll.Until(t, patience, "memory and answers have stopped growing", func() bool {
				_, peak, err = process.Memory(p.PID())
				expect.NoError(t, err)
				chunks := chunksWritten.Load()
				stable++
				if peak > lastPeak || chunks != lastChunks {
					lastPeak, lastChunks, stable = peak, chunks, 0
				}
				return stable >= stableSamples
			})
			got, want := float64(peak-before), float64(tt.clients*tt.bytesEach+firstUse)
			t.Logf("%d clients: %d MiB resident, %d before; each %.1f KiB", tt.clients, peak>>20, before>>20, got/float64(tt.clients)/1024)
			if got > want {
				t.Errorf("the clients take %.1f MiB, want at most %.1f", got/mib, want/mib)
			}
		})
	}
}
