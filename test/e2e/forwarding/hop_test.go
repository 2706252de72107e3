package forwarding

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// TestHop looks at what listproxy sends upstream, at a hop before the API server.
func TestHop(t *testing.T) {
	harness.Long(t)
	h := hop.Run(t, cp.URL(), cp.CA())
	configs := func(user string) *rest.Config { return h.RESTConfig(cp.RESTConfig(user)) }
	upstream, err := newDoor(t.TempDir(), "hop", configs)
	expect.NoError(t, err)
	t.Cleanup(upstream.close)
	d := startProxy(t, harness.ProxyOptions{
		Upstream: configs(controlplane.Feed), Args: []string{"--review-ttl", "0", "--eager", "pods"},
	})
	t.Run("untouched", func(t *testing.T) { testUntouched(t, h, upstream, d) })
	t.Run("upload", func(t *testing.T) { testUpload(t, h, d) })
	t.Run("cancelled", func(t *testing.T) { testCancelled(t, h, d) })
	t.Run("each list is reviewed", func(t *testing.T) { testEachReviewed(t, h, d) })
	t.Run("broken off", func(t *testing.T) { testBrokenOff(t, h, d) })
}

// arrived is a request as the upstream sees it.
type arrived struct {
	Method, URI, Body string
	Length            int64
	Header, Trailer   http.Header
}

// testUntouched sends odd requests straight to the hop and through listproxy, and compares what
// arrives there and what comes back.
func testUntouched(t *testing.T, h *hop.Hop, upstream, via *door) {
	arrivals := make(chan arrived, 1)
	h.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/untouched") {
			return false
		}
		body, _ := io.ReadAll(r.Body)
		arrivals <- arrived{r.Method, r.RequestURI, string(body), r.ContentLength, r.Header.Clone(), r.Trailer.Clone()}
		header := w.Header()
		header["X-Several"] = []string{"one", "two, three"}
		header["Warning"] = []string{`299 - "first"`, `299 - "second"`}
		header["X-Kubernetes-Pf-Flowschema-Uid"] = []string{"1234"}
		header["Cache-Control"] = []string{"private, max-age=3"}
		header["Content-Type"] = nil // none, and none is to be made up
		if r.Method != http.MethodHead {
			header["Trailer"] = []string{"X-Checksum"}
		}
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = w.Write(allBytes())
		header["X-Checksum"] = []string{"5678"}
		return true
	})
	defer h.OnRequest(nil)

	header := http.Header{
		"Accept": {"application/json, */*;q=0.1"}, "Accept-Encoding": {"gzip, br"}, "Accept-Language": {"tlh"},
		"Cookie": {"a=b; c=d"}, "Cache-Control": {"no-cache"}, "If-Match": {`"x"`}, "Range": {"bytes=0-9"},
		"Impersonate-User": {"alice"}, "Impersonate-Group": {"one", "two"}, "Traceparent": {"00-" + strings.Repeat("1", 32) + "-" + strings.Repeat("2", 16) + "-01"},
		"X-Own": {"anything", "else"}, "Te": {"trailers"}, "User-Agent": {"odd/1 (client)"}, "X-Http-Method-Override": {"DELETE"},
	}
	claims := http.Header{
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "Forwarded": {"for=10.0.0.1"},
		"X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-Host": {"elsewhere"}, "X-Real-Ip": {"10.0.0.1"},
	}
	for _, user := range []string{controlplane.Admin, controlplane.Anonymous, stranger} {
		for _, proto := range []string{http1, http2} {
			for _, c := range []call{
				{path: "/untouched"},
				{path: "/untouched?"},
				{path: "/untouched/a%2Fb//c;d=e/../%41?x=1;y=2&x=%zz&watch=true&&z"},
				{path: "/untouched", method: http.MethodHead},
				{path: "/untouched", method: http.MethodPost, body: strings.Repeat("body", 1000)},
				{path: "/untouched", method: http.MethodDelete, body: "{}"},
				{path: "/untouched", method: "BREW"},
			} {
				c.proto, c.user, c.header = proto, user, header
				wantBack := upstream.do(t, c)
				want := await(t, "the request arrived", arrivals)
				want.Header.Set("X-Forwarded-For", "127.0.0.1")

				c.header = header.Clone()
				maps.Copy(c.header, claims)
				gotBack := via.do(t, c)
				got := await(t, "the request arrived", arrivals)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s %s as %s over %s, there (-direct +via):\n%s", c.method, c.path, user, proto, d)
				}
				if user != controlplane.Admin && proto == http2 {
					// Their requests go to kube-apiserver over HTTP/1.1, which has no length beside trailers.
					wantBack.Header.Del("Content-Length")
					gotBack.Header.Del("Content-Length")
				}
				if d := diff(wantBack, gotBack); d != "" {
					t.Errorf("%s %s as %s over %s, back (-direct +via):\n%s", c.method, c.path, user, proto, d)
				}
				wantForwarded(t, gotBack, "not-list")
			}
		}
	}
}

// testUpload sends each part of a body after the one before has arrived upstream.
func testUpload(t *testing.T, h *hop.Hop, via *door) {
	const parts = 5
	arrivals := make(chan string)
	h.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/upload" {
			return false
		}
		for in := bufio.NewScanner(r.Body); in.Scan(); {
			arrivals <- in.Text()
		}
		w.WriteHeader(http.StatusNoContent)
		return true
	})
	defer h.OnRequest(nil)
	for _, proto := range []string{http1, http2} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		body, to := io.Pipe()
		go func() {
			defer func() { _ = to.Close() }()
			for i := range parts {
				_, _ = fmt.Fprintln(to, "part", i)
				select {
				case got := <-arrivals:
					if got != fmt.Sprint("part ", i) {
						t.Errorf("%s: %q arrived", proto, got)
					}
				case <-ctx.Done():
					t.Errorf("%s: part %d did not arrive", proto, i)
					return
				}
			}
		}()
		r := via.read(t, via.sendBody(ctx, t, call{proto: proto, method: http.MethodPost, path: "/upload"}, body))
		if r.Status != http.StatusNoContent {
			t.Errorf("%s: status %d: %s", proto, r.Status, r.Body)
		}
	}
}

// testCancelled has clients go away from watches and from requests without an answer; then the
// request upstream ends, too.
func testCancelled(t *testing.T, h *hop.Hop, via *door) {
	begun, ended := make(chan struct{}), make(chan struct{})
	h.OnRequest(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("cancel") == "" {
			return false
		}
		go func() {
			<-r.Context().Done()
			ended <- struct{}{}
		}()
		if r.URL.Path == "/silent" {
			begun <- struct{}{}
			<-r.Context().Done()
			return true
		}
		return false
	})
	defer h.OnRequest(nil)
	for _, proto := range []string{http1, http2} {
		ctx, cancel := context.WithCancel(t.Context())
		via.send(ctx, t, call{proto: proto, path: "/api/v1/configmaps?watch=true&cancel=it"})
		cancel()
		await(t, "the watch ended upstream", ended)

		ctx, cancel = context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, via.url+"/silent?cancel=it", http.NoBody)
			if err == nil {
				_, err = via.clients[proto].Do(req)
			}
			answered <- err
		}()
		await(t, "the request began upstream", begun)
		cancel()
		await(t, "the request ended upstream", ended)
		if err := await(t, "the client's request ended", answered); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// testEachReviewed counts reviews: without a TTL there is one for each list.
func testEachReviewed(t *testing.T, h *hop.Hop, via *door) {
	var reviews atomic.Int32
	h.OnRequest(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
			reviews.Add(1)
			if got, want := r.Header.Get("Authorization"), "Bearer "+cp.Token(controlplane.Alice); got != want {
				t.Error("the review has not the caller's credentials")
			}
		}
		return false
	})
	defer h.OnRequest(nil)
	const lists = 5
	for range lists {
		r := via.do(t, call{path: "/api/v1/namespaces/team-a/pods?resourceVersion=0", user: controlplane.Alice})
		if !isHit(r) {
			t.Errorf("status %d, %s", r.Status, r.cacheStatus)
		}
	}
	if got := reviews.Load(); got != lists {
		t.Errorf("%d reviews for %d lists", got, lists)
	}
}

// testBrokenOff breaks the connection upstream under a watch: the client must not take that for its
// end.
func testBrokenOff(t *testing.T, h *hop.Hop, via *door) {
	for _, proto := range []string{http1, http2} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		res := via.send(ctx, t, call{proto: proto, path: "/api/v1/configmaps?watch=true"})
		in := bufio.NewReader(res.Body)
		ns := newNamespace(t)
		newConfigMap(t, ns, "one", nil)
		for event := ""; !strings.Contains(event, ns); {
			var err error
			if event, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		h.CutAll()
		rest, err := io.ReadAll(in)
		if err == nil || ctx.Err() != nil {
			t.Errorf("%s: the watch ended with %q, %v", proto, rest, err)
		}
	}
}
