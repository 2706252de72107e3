package operators

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

const (
	// arrival is how long the spans of a request are waited for. What has not come by then is lost.
	arrival = 20 * time.Second
	// allArrivals is patience with all the requests of a test.
	allArrivals = 4 * time.Minute
	lookEvery   = 50 * time.Millisecond
)

// TestTraces: a list is one tree of both processes' spans, which is linked with the caller's trace.
// Spans may be lost on their way, of a request with which nothing is wrong: full queues drop them, and
// exports have a time-out. So requests are put until one has arrived whole.
func TestTraces(t *testing.T) {
	t.Parallel()
	const request, review = "listproxy GET pods", "apiserver POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, tt := range map[string]struct {
		path   func(try int) string
		source string
		below  map[string]string // spans, and which one each is below
		tags   map[string]string // of the request's span
	}{
		"forwarded": {
			path: func(int) string { return "/api/v1/pods" }, source: "listproxy; fwd=bypass; detail=most-recent",
			below: map[string]string{"listproxy forward": request, "apiserver GET /api/v1/pods": "listproxy forward"},
			tags: map[string]string{
				"listproxy.decision": "forward", "listproxy.reason": "most-recent", "listproxy.semantics": "most-recent",
				"http.response.status_code": "200",
			},
		},
		"from memory": {
			// Of a namespace where nothing was reviewed yet.
			path: func(try int) string { return fmt.Sprintf("/api/v1/namespaces/try-%d/pods?resourceVersion=0", try) }, source: "listproxy; hit; detail=any",
			below: map[string]string{
				"listproxy review": request, "listproxy snapshot": request, "listproxy write": request,
				"listproxy POST": "listproxy review", review: "listproxy POST",
			},
			tags: map[string]string{"listproxy.decision": "serve"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			try := 0
			expect.NoError(t, poll.Try(t.Context(), allArrivals, time.Second, "all spans of a request", func() error {
				try++
				spans, err := traceOf(t, tt.path(try), tt.source, append(slices.Collect(maps.Keys(tt.below)), request))
				if err != nil {
					return err
				}
				for child, parent := range tt.below {
					if spans[child].parent() != spans[parent].id() {
						t.Errorf("%s is not below %s: %v", child, parent, spans)
					}
				}
				for key, want := range tt.tags {
					if got := attribute(spans[request].GetAttributes(), key); got != want {
						t.Errorf("%s=%s, want %s", key, got, want)
					}
				}
				for what := range spans {
					if tt.tags["listproxy.decision"] == "serve" && strings.HasPrefix(what, "apiserver GET ") {
						t.Errorf("kube-apiserver was asked, too: %s", what)
					}
				}
				return nil
			}))
		})
	}
}

// traceOf sends a request of an administrator, as part of a trace of the caller's, and returns the trace
// that listproxy began for it, when it has spans of these names.
func traceOf(t *testing.T, path, source string, names []string) (spans map[string]span, err error) {
	t.Helper()
	client := ask.MustNew(t, traced.RESTConfig(cp.RESTConfig(controlplane.Admin)), patience)
	defer client.HTTP.CloseIdleConnections()
	var id [24]byte
	_, _ = rand.Read(id[:])
	callers := hex.EncodeToString(id[:16])
	a, err := client.With("Traceparent", "00-"+callers+"-"+hex.EncodeToString(id[16:])+"-01").Get(t.Context(), path)
	if err == nil && a.Source() != source {
		err = errors.New(a.String())
	}
	if err != nil {
		return nil, err
	}
	err = poll.Try(t.Context(), arrival, lookEvery, "all spans of the request", func() error {
		spans = map[string]span{}
		for _, root := range collected.of(func(s span) bool { return s.linked(callers) }) {
			for _, s := range collected.of(func(s span) bool { return s.trace() == root.trace() }) {
				spans[s.service+" "+s.GetName()] = s
			}
		}
		for _, name := range names {
			if _, there := spans[name]; !there {
				return fmt.Errorf("%s has not arrived; there are %v", name, slices.Collect(maps.Keys(spans)))
			}
		}
		return nil
	})
	for _, leak := range secrets.Suite.Search("a trace", fmt.Sprint(spans)) {
		t.Error(leak)
	}
	return spans, err
}
