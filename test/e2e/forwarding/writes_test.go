package forwarding

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// TestLongBody: how long a body may be, kube-apiserver says, in its own words, whether the client tells
// the length or not.
func TestLongBody(t *testing.T) {
	harness.Long(t)
	const target = "/api/v1/namespaces/team-a/configmaps?dryRun=All"
	eachWay(t, func(t *testing.T, via way) {
		for size, status := range map[int]int{
			1000 << 10: http.StatusCreated,
			1100 << 10: http.StatusUnprocessableEntity,   // more than a ConfigMap may hold
			3200 << 10: http.StatusRequestEntityTooLarge, // more than a request may hold
		} {
			for _, proto := range []int{1, 2} {
				for _, chunked := range []bool{false, true} {
					post := func(to way) (code int, said string) {
						var body io.Reader = strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"it":"` +
							strings.Repeat("x", size) + `"}}`)
						if chunked {
							body = struct{ io.Reader }{body}
						}
						res, err := to.speaking(proto).as(t, controlplane.Admin).Open(t.Context(), http.MethodPost, target, body)
						expect.NoError(t, err)
						defer func() { _ = res.Body.Close() }()
						text, err := io.ReadAll(res.Body)
						expect.NoError(t, err)
						return res.StatusCode, string(text)
					}
					code, got := post(via)
					_, want := post(direct)
					if code != status || code != http.StatusCreated && got != want || strings.Count(got, "x") != strings.Count(want, "x") {
						t.Errorf("HTTP/%d, %d bytes, chunked %v: %d: %.300s, not %.300s", proto, size, chunked, code, got, want)
					}
				}
			}
		}
	})
}

// TestMaxRequestsInflight: what is too much gets a 429 of which client-go understands that it may come
// again. Watches are not bounded by it.
func TestMaxRequestsInflight(t *testing.T) {
	harness.Long(t)
	// Requests for /held arrive there, and wait until they are let go.
	slow, arrived, release := hop.Run(t, cp.URL(), cp.CA()), make(chan bool), make(chan struct{})
	slow.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/held" {
			return false
		}
		arrived <- true
		select {
		case <-release:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
		return true
	})
	p := harness.RunProxy(t, harness.ProxyOptions{
		Upstream: slow.RESTConfig(cp.RESTConfig(controlplane.Feed)), Args: []string{"--max-requests-inflight", "2"},
	})
	var all sync.WaitGroup
	for _, user := range []string{controlplane.Admin, controlplane.Carol} {
		c := way(p.RESTConfig).as(t, user)
		get(t, c, "/version") // from now on, this token is not one that nobody knows
		all.Go(func() { _, _ = c.Get(t.Context(), "/held") })
		<-arrived
	}

	bounded := way(p.RESTConfig).as(t, controlplane.Admin)
	for method, target := range map[string]string{
		http.MethodGet: "/api/v1/pods?resourceVersion=0", http.MethodPost: "/api/v1/namespaces/default/configmaps",
	} { // each waits for five seconds first
		a, err := bounded.Send(t.Context(), method, target, nil)
		expect.NoError(t, err)
		want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.",` +
			`"reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}` + "\n"
		if a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" || string(a.Body) != want {
			t.Errorf("Retry-After %q: %s", a.Header.Get("Retry-After"), a)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := bounded.Open(ctx, http.MethodGet, "/api/v1/configmaps?watch=true", nil)
	expect.NoError(t, err)
	_ = watch.Body.Close()
	if watch.StatusCode != http.StatusOK {
		t.Errorf("a watch beside: %s", watch.Status)
	}

	close(release)
	all.Wait()
	if a := get(t, bounded, "/version"); a.Code != http.StatusOK {
		t.Errorf("when there is room: %s", a)
	}
}
