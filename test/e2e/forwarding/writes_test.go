package forwarding

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

func jsonBody(method, path, body string) call {
	return call{method: method, path: path, body: body, header: http.Header{"Content-Type": {"application/json"}}}
}

// TestLargeUploads sends as much as an object may hold, and more than the API server reads.
func TestLargeUploads(t *testing.T) {
	harness.Long(t)
	maps := "/api/v1/namespaces/" + newNamespace(t) + "/configmaps"
	payload := func(size int) string { return strings.Repeat("0123456789abcdef", size/16) }
	large := func(size int) call {
		return jsonBody("POST", maps, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"it":%q}}`, payload(size)))
	}
	// The payload comes back; it is compared here, where that is cheap.
	short := func(r reply) reply {
		r.Body = strings.Replace(r.Body, payload(1000<<10), "PAYLOAD", 1)
		return r.impersonal()
	}
	for _, proto := range []string{http1, http2} {
		for _, test := range []struct {
			status int
			call   call
		}{
			{201, large(1000 << 10)},
			{422, large(1100 << 10)}, // more than a ConfigMap may hold
			{413, large(3200 << 10)}, // more than a request may hold
		} {
			test.call.proto = proto
			remove := call{method: "DELETE", path: maps + "/large"}
			want := direct.do(t, test.call)
			direct.do(t, remove)
			got := via.do(t, test.call)
			direct.do(t, remove)
			if d := diff(short(want), short(got)); d != "" {
				t.Errorf("%s, %d bytes (-direct +via):\n%s", proto, len(test.call.body), d)
			}
			if got.Status != test.status {
				t.Errorf("%s, %d bytes: status %d, want %d: %.300s", proto, len(test.call.body), got.Status, test.status, got.Body)
			}
			wantForwarded(t, got, "not-list")
		}
	}
}

// closing is a kube-apiserver that now and then closes the connection of a request (GOAWAY), behind a
// balancer that counts connections.
func closing(t *testing.T) (counted *hop.Balancer, configs func(user string) *rest.Config) {
	t.Helper()
	server, err := cp.AddAPIServer(t.Context(), cp.Version())
	expect.NoError(t, err)
	t.Cleanup(func() { _ = server.Kill() })
	expect.NoError(t, server.Kill())
	expect.NoError(t, server.Use(t.Context(), cp.Version(), fmt.Sprint("--goaway-chance=", goAwayChance)))
	expect.NoError(t, server.Start(t.Context()))
	counted, err = hop.StartBalancer()
	expect.NoError(t, err)
	t.Cleanup(counted.Close)
	counted.Add(strings.TrimPrefix(server.URL(), "https://"))
	return counted, func(user string) *rest.Config {
		config := cp.RESTConfig(user)
		config.Host = "https://" + counted.Address()
		return config
	}
}

// TestGoAway: kube-apiserver closes connections while reads and writes of all sizes are under way. No
// more of them fail through listproxy than directly: none, or where there is no room to keep a body,
// with an answer for which clients repeat the request. And listproxy opens no more connections for each that
// is closed than a client does that sends as many requests.
func TestGoAway(t *testing.T) {
	harness.Long(t)
	counted, configs := closing(t)
	plain, err := harness.BuildPlainProxy(t.Context()) // a fast one, as the API server is
	expect.NoError(t, err)
	start := func(args ...string) *door {
		return startProxy(t, harness.ProxyOptions{Binary: plain, Upstream: configs(controlplane.Feed), Args: append([]string{"--log-level", "info"}, args...)})
	}
	ns := newNamespace(t)
	newConfigMap(t, ns, "one", nil)
	again := "429, Retry-After 1"
	var directly float64 // connections for each GOAWAY
	for _, side := range []struct {
		name string
		door *door
		may  string // fail
	}{
		{"directly", doorOf(t, configs), ""},
		{"through listproxy", start(), ""},
		{"through listproxy without room", start("--max-inflight-bytes", "64Ki"), again},
	} {
		var goAways, dials float64
		for _, size := range []int{10 << 10, 300 << 10} {
			l := load{door: side.door, path: "/api/v1/namespaces/" + ns + "/configmaps/one"}
			before := counted.Accepted()
			l.run(t, size)
			opened := counted.Accepted() - before
			harness.Log(fmt.Sprintf("goaway, %s, %d KiB: %d reads, %d writes, %d connections, failed: %v", side.name, size>>10, l.reads.Load(), writesUnderGoAway, opened, l.failed))
			goAways, dials = goAways+goAwayChance*float64(l.reads.Load()+writesUnderGoAway), dials+float64(opened)
			delete(l.failed, "PUT "+side.may)
			if len(l.failed) > 0 {
				t.Errorf("%s, %d KiB: %v", side.name, size>>10, l.failed)
			}
		}
		if directly == 0 {
			directly = dials / goAways
		}
		if dials > 2*directly*goAways { // a busy machine makes a difference
			t.Errorf("%s: %v connections for %v GOAWAYs, directly %.1f for each", side.name, dials, goAways, directly)
		}
	}
}

const (
	writesUnderGoAway = 100
	goAwayChance      = 0.02 // of a request
)

// load reads and writes one object.
type load struct {
	door  *door
	path  string
	reads atomic.Int64

	mu     sync.Mutex
	failed map[string]int
}

// run sends writes of so many bytes, while twenty others read.
func (l *load) run(t *testing.T, size int) {
	t.Helper()
	l.failed = map[string]int{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers, writers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			for ctx.Err() == nil {
				l.send(ctx, call{path: l.path})
				l.reads.Add(1)
			}
		})
	}
	var sent atomic.Int64
	write := jsonBody(http.MethodPut, l.path+"?dryRun=All",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"a":"`+strings.Repeat("x", size)+`"}}`)
	for range 4 {
		writers.Go(func() {
			for sent.Add(1) <= writesUnderGoAway {
				l.send(t.Context(), write)
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
}

// send sends a request and notes what became of it, unless ctx ended.
func (l *load) send(ctx context.Context, c call) {
	failure := func() string {
		r, err := http.NewRequestWithContext(ctx, c.method, l.door.url+c.path, strings.NewReader(c.body))
		if err != nil {
			return err.Error()
		}
		r.Header.Set("Authorization", "Bearer "+cp.Token(controlplane.Admin))
		maps.Copy(r.Header, c.header)
		res, err := l.door.clients[http2].Do(r)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			return err.Error()
		case res.StatusCode == http.StatusOK:
			return ""
		case res.Header.Get("Retry-After") != "":
			return fmt.Sprintf("%d, Retry-After %s", res.StatusCode, res.Header.Get("Retry-After"))
		}
		return fmt.Sprint(res.StatusCode, " ", string(body[:min(len(body), 300)]))
	}()
	if failure != "" && ctx.Err() == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.failed[cmp.Or(c.method, http.MethodGet)+" "+failure]++
	}
}
