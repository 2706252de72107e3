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

	// perConnection is the memory that listproxy's limits and the chart assume for a connection.
	perConnection = 128 << 10
	// perAnswer is the memory that both assume for a forwarded answer that the client stops reading.
	perAnswer = 320 << 10
	// perWatch is about four times the 61 KiB that the chart assumes for a watch.
	perWatch = 256 << 10
	// firstUse is the memory that listproxy takes once, at the first requests, however many follow.
	firstUse = 8 << 20
	// stableSamples is the number of samples in a row that must show no growth before the measurement ends.
	stableSamples = 25
)

// TestHeldMemory: an idle connection and a forwarded answer that the client stops reading take no more memory than the chart
// assumes, and a forwarded watch no more than four times as much. The hop answers in kube-apiserver's place.
func TestHeldMemory(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	leave, err := quietStage.enter(context.WithoutCancel(t.Context()))
	t.Cleanup(leave)
	expect.NoError(t, err)
	program, err := listproxyProgram(harness.BuildPlainProxy) // the race detector takes memory of its own
	expect.NoError(t, err)
	for name, tt := range map[string]struct {
		clients       int    // each sends the request over its own connection, which stays open
		wantBytesEach int    // the most memory that listproxy may take for each client
		request       string // method and target
		// answer answers in kube-apiserver's place, and adds to progress whenever it has written something. If it is nil,
		// listproxy answers the request itself.
		answer func(w http.ResponseWriter, r *http.Request, progress *atomic.Int64)
	}{
		"idle connections": {clients: 100, wantBytesEach: perConnection, request: "OPTIONS *"},
		"forwarded watches": {
			clients: 300, wantBytesEach: perConnection + perWatch, request: "GET /api/v1/configmaps?labelSelector=held&watch=true",
			answer: func(w http.ResponseWriter, r *http.Request, _ *atomic.Int64) {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
		},
		"answers that nobody reads": {
			clients: 200, wantBytesEach: perConnection + perAnswer, request: "GET /openapi/v2",
			answer: func(w http.ResponseWriter, _ *http.Request, progress *atomic.Int64) {
				chunk := bytes.Repeat([]byte("a"), 4<<10)
				for range 4 * mib / len(chunk) { // more than the buffers on the way hold
					if _, err := w.Write(chunk); err != nil {
						return
					}
					progress.Add(1)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived, progress atomic.Int64
			proxyAnswers := tt.answer == nil
			between := hop.Run(t, quietStage.plane.URL(), quietStage.plane.CA(), hop.Odd{})
			between.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
				if hop.Own(r) || !strings.Contains(tt.request, r.URL.Path) {
					return false
				}
				arrived.Add(1)
				tt.answer(w, r, &progress)
				return true
			})
			p := harness.RunProxy(t, harness.ProxyOptions{
				Upstream: between.RESTConfig(quietStage.plane.RESTConfig(controlplane.Feed)), Binary: program,
				Args: []string{"--eager", "configmaps", "--log-level", "info"}, // no log of requests, which this process would keep
			})
			before, _, err := process.Memory(p.PID())
			expect.NoError(t, err)
			for i := range tt.clients {
				hold(t, p, i, tt.request, proxyAnswers)
			}
			poll.Until(t, patience, "all requests have arrived", func() bool {
				return proxyAnswers || int(arrived.Load()) == tt.clients
			})
			peak := awaitStablePeak(t, p, &progress)
			got, want := float64(peak-before), float64(tt.clients*tt.wantBytesEach+firstUse)
			t.Logf("%d clients: %d MiB resident, %d before; each %.1f KiB", tt.clients, peak>>20, before>>20, got/float64(tt.clients)/1024)
			if got > want {
				t.Errorf("the clients take %.1f MiB, want at most %.1f", got/mib, want/mib)
			}
		})
	}
}

// hold sends a request over a connection that stays open until the test ends. It reads the beginning of the answer if
// readsAnswer is true, and otherwise nothing.
func hold(t *testing.T, p *harness.Proxy, client int, request string, readsAnswer bool) {
	t.Helper()
	conn, err := dial(p.Address(), p.CA(), client)
	expect.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n",
		request, quietStage.plane.Token(controlplane.Admin))
	if err == nil && readsAnswer {
		_, err = io.ReadAtLeast(conn, make([]byte, 1024), 1)
	}
	expect.NoError(t, err)
}

// awaitStablePeak waits until the peak of the process's memory and progress, the counter of the answers, have both stopped
// growing. It returns the peak.
func awaitStablePeak(t *testing.T, p *harness.Proxy, progress *atomic.Int64) (peak int64) {
	t.Helper()
	var lastProgress int64
	stable := 0
	poll.Until(t, patience, "memory and answers have stopped growing", func() bool {
		_, nowPeak, err := process.Memory(p.PID())
		expect.NoError(t, err)
		nowProgress := progress.Load()
		stable++
		if nowPeak > peak || nowProgress != lastProgress {
			peak, lastProgress = nowPeak, nowProgress
			stable = 0
		}
		return stable >= stableSamples
	})
	return peak
}
