package forwarding

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// held is a hop before the API server that holds back requests for /held until they are let go.
type held struct {
	*hop.Hop
	arrived chan struct{} // receives for each
	release chan struct{} // each receive lets one go
}

func startHeld(t *testing.T) *held {
	t.Helper()
	inner := hop.Run(t, cp.URL(), cp.CA())
	h := &held{Hop: inner, arrived: make(chan struct{}), release: make(chan struct{})}
	h.OnRequest(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/held" {
			return false
		}
		for _, step := range []chan struct{}{h.arrived, h.release} {
			select {
			case step <- struct{}{}:
			case <-r.Context().Done():
				return true
			}
		}
		w.WriteHeader(http.StatusNoContent)
		return true
	})
	return h
}

// upstream is how listproxy reaches the API server by the hop.
func (h *held) upstream() *rest.Config { return h.RESTConfig(cp.RESTConfig(controlplane.Feed)) }

// fill sends requests that are held back, each by a user of its own if there are several, and
// returns when they have arrived. The function returned lets them go and waits for their answers.
func (h *held) fill(t *testing.T, d *door, users ...string) (release func()) {
	t.Helper()
	var answers sync.WaitGroup
	for _, user := range users {
		answers.Go(func() {
			if r := d.doWithin(t, longPatience, call{path: "/held", user: user}); r.Status != http.StatusNoContent {
				t.Errorf("a request that was let in: %d: %s", r.Status, r.Body)
			}
		})
		await(t, "the request arrived", h.arrived)
	}
	return func() {
		t.Helper()
		for range users {
			await(t, "the request went on", h.release)
		}
		answers.Wait()
	}
}

// wantTooMany requires a 429 as clients know it.
func wantTooMany(t *testing.T, r reply) {
	t.Helper()
	want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.",` +
		`"reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}` + "\n"
	if r.Status != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || r.Body != want {
		t.Errorf("status %d, Retry-After %q: %s", r.Status, r.Header.Get("Retry-After"), r.Body)
	}
}

// TestMaxRequestsInflight: what is too much gets a 429 that client-go understands, and repeats
// until there is room.
func TestMaxRequestsInflight(t *testing.T) {
	harness.Long(t)
	h := startHeld(t)
	p := startProcess(t, harness.ProxyOptions{Upstream: h.upstream(), Args: []string{"--max-requests-inflight", "2"}})
	configs := throughProxy(p)
	d := doorOf(t, configs)
	// A watch is none of them, and not bounded by them.
	ctx, cancel := context.WithTimeout(t.Context(), longPatience)
	defer cancel()
	watch := d.send(ctx, t, call{path: "/api/v1/configmaps?watch=true"})
	defer func() { _ = watch.Body.Close() }()

	release := h.fill(t, d, controlplane.Admin, controlplane.Carol)
	var turned sync.WaitGroup // each waits for five seconds first
	for _, proto := range []string{http1, http2} {
		turned.Go(func() { wantTooMany(t, d.do(t, call{proto: proto, path: "/api/v1/pods?resourceVersion=0"})) })
		turned.Go(func() {
			wantTooMany(t, d.do(t, call{proto: proto, path: "/api/v1/namespaces/default/configmaps", method: http.MethodPost, body: "{}"}))
		})
	}
	turned.Wait()
	second := d.send(ctx, t, call{path: "/api/v1/configmaps?watch=true"})
	_ = second.Body.Close()
	if second.StatusCode != http.StatusOK {
		t.Errorf("a watch beside: %s", second.Status)
	}

	// kubectl and controllers are client-go.
	config := configs(controlplane.Admin)
	refusals := make(chan struct{}, 100)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			res, err := next.RoundTrip(r)
			if err == nil && res.StatusCode == http.StatusTooManyRequests {
				refusals <- struct{}{}
			}
			return res, err
		})
	})
	client, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		answered <- err
	}()
	await(t, "client-go is turned away", refusals)
	// And what gives up says why.
	err = client.CoreV1().RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(ctx).Error()
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 1 {
		t.Errorf("client-go makes of it: %v, %d", err, seconds)
	}
	release()
	if err := await(t, "client-go is answered", answered); err != nil {
		t.Error(err)
	}
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLongBody: how long a body may be, kube-apiserver says, in its own words.
func TestLongBody(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Connect: true})
	const most = 3 << 20 // kube-apiserver's own
	for name, configs := range ways(p) {
		d := doorOf(t, configs)
		for _, proto := range []string{http1, http2} {
			for _, chunked := range []bool{false, true} {
				ask := func(d *door, bytes int) reply {
					c := call{
						proto: proto, method: http.MethodPost, path: "/api/v1/namespaces/team-a/configmaps?dryRun=All",
						header: http.Header{"Content-Type": {"application/json"}},
						body:   `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"x":"` + strings.Repeat("x", bytes) + `"}}`,
					}
					if !chunked {
						return d.do(t, c)
					}
					body := struct{ io.Reader }{strings.NewReader(c.body)}
					return d.read(t, d.sendBody(t.Context(), t, c, body))
				}
				want, got := ask(direct, most), ask(d, most)
				if want.Status != http.StatusRequestEntityTooLarge || got.Status != want.Status {
					t.Errorf("status %d, the API server's is %d: %s", got.Status, want.Status, want.Body)
				}
				if diff := cmp.Diff(want.Body, got.Body); diff != "" {
					t.Errorf("%s, %s, chunked %v (-direct +via):\n%s", name, proto, chunked, diff)
				}
				if small := ask(d, 0); small.Status != http.StatusCreated {
					t.Errorf("a small body: %d: %s", small.Status, small.Body)
				}
			}
		}
	}
}
