package proxy

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
	"github.com/listproxy/listproxy/proxy/internal/observetest"
	"github.com/listproxy/listproxy/proxy/internal/proxytest"
	"github.com/listproxy/listproxy/proxy/server"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// BenchmarkIdleWatch shows how much more memory a watch takes that is told nothing than a stream of
// a handler that only waits: on the heap, and of stacks, which grow in steps.
func BenchmarkIdleWatch(b *testing.B) {
	w := startModelWorld(b, time.Millisecond)
	w.answerReviews(b)
	h := w.handler
	h.Authenticator, h.Draining, h.StallTimeout = authntest.New(b), func() bool { return false }, time.Minute
	h.Observer, _ = observetest.New(b, nil)
	var err error
	if h.Upstream, err = upstream.New(&rest.Config{Host: "https://upstream.example"}); err != nil {
		b.Fatal(err)
	}
	h.Upstream.Accept(authntest.Identify(h.Authenticator, "Bearer a"))
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		collection, why := h.Collections.Use(modelWidgets)
		if why == reason.None {
			if _, why = collection.Latest(b.Context(), 0); why == reason.None {
				break
			}
		}
		if time.Since(begun) > time.Minute {
			b.Fatalf("not in memory: %s", why)
		}
	}
	path := fmt.Sprintf("/apis/example.com/v1/widgets?watch=true&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion=%d", w.revision)
	waits := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for b.Loop() {
		bareHeap, bareStacks := memoryOfIdle(b, waits, path, "")
		heap, stacks := memoryOfIdle(b, h.Chain(), path, "listproxy; hit")
		b.ReportMetric(heap-bareHeap, "heap-B/watch")
		b.ReportMetric(stacks-bareStacks, "stack-B/watch")
	}
}

// memoryOfIdle is what one of many streams takes, with its client, whose answer does not end.
func memoryOfIdle(b *testing.B, handler http.Handler, path, status string) (heap, stacks float64) {
	b.Helper()
	const connections, each = 10, 100
	at := proxytest.Serve(b, server.New(handler, nil, proxytest.DiscardLog()), true)
	defer at.Close()
	before := memoryInUse()
	for range connections {
		transport := at.Client().Transport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		for range each {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, at.URL+path, nil)
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer a")
			r.Header.Set("Accept", "application/json")
			answer, err := transport.RoundTrip(r)
			if err != nil {
				b.Fatal(err)
			}
			defer answer.Body.Close()
			if got := answer.Header.Get("Cache-Status"); !strings.HasPrefix(got, status) {
				b.Fatalf("Cache-Status %q", got)
			}
		}
	}
	after := memoryInUse()
	return float64(after.HeapAlloc-before.HeapAlloc) / (connections * each), float64(after.StackInuse-before.StackInuse) / (connections * each)
}

// memoryInUse is without garbage, and after stacks that were needed have shrunk, which one
// collection does by half.
func memoryInUse() (m runtime.MemStats) {
	for range 5 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}
