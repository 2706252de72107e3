package forwarding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
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
	p := startProcess(t, harness.ProxyOptions{
		Upstream: h.upstream(), Connect: true, Args: []string{"--max-requests-inflight", "2"},
	})
	for name, configs := range map[string]func(user string) *rest.Config{
		"server": throughProxy(p),
		"proxy-url": func(user string) *rest.Config {
			config := cp.RESTConfig(user)
			config.Host = h.URL() // that is the API server, to this listproxy
			return p.TunnelConfig(config)
		},
	} {
		t.Run(name, func(t *testing.T) {
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
		})
	}
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOverloadWait: a request that waits gets the place that becomes free.
func TestOverloadWait(t *testing.T) {
	harness.Long(t)
	h := startHeld(t)
	p := startProcess(t, harness.ProxyOptions{Upstream: h.upstream(), Args: []string{"--max-requests-inflight", "1"}})
	d := doorOf(t, throughProxy(p))
	// On a machine that stands still for five seconds it is turned away: then once more.
	poll.Until(t, patience, "one that waited is served", func() bool {
		release := h.fill(t, d, controlplane.Admin)
		answered := make(chan reply, 1)
		go func() { answered <- d.doWithin(t, longPatience, call{path: "/version", user: controlplane.Alice}) }()
		poll.Until(t, patience, "it waits, or has waited in vain", func() bool {
			n, _, err := soak.Sum(t.Context(), http.DefaultClient, p.AdminURL()+"/metrics", "listproxy_inflight_waiting", map[string]string{"kind": "short"})
			return err == nil && n == 1 || len(answered) == 1
		})
		release()
		switch r := await(t, "it is answered", answered); r.Status {
		case http.StatusOK:
			return true
		case http.StatusTooManyRequests:
			return false
		default:
			t.Fatalf("status %d: %s", r.Status, r.Body)
			return false
		}
	})
}

// TestMaxLongRunning: watches have a bound of their own, and a place that is given up can be taken.
func TestMaxLongRunning(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{"--max-long-running-requests", "1"},
	})
	const watch = "/api/v1/configmaps?watch=true&resourceVersion=0"
	for name, configs := range ways(p) {
		t.Run(name, func(t *testing.T) {
			d := doorOf(t, configs)
			ctx, cancel := context.WithTimeout(t.Context(), longPatience)
			defer cancel()
			var first *http.Response
			poll.Until(t, patience, "there is a place", func() bool {
				first = d.send(ctx, t, call{path: watch})
				if first.StatusCode != http.StatusOK {
					_ = first.Body.Close()
				}
				return first.StatusCode == http.StatusOK
			})
			for _, proto := range []string{http1, http2} {
				for _, path := range []string{watch, "/api/v1/watch/pods", "/api/v1/namespaces/team-a/pods/none/log?follow=true", "/api/v1/namespaces/team-a/pods/none/exec?command=true"} {
					wantTooMany(t, d.do(t, call{proto: proto, path: path}))
				}
				if r := d.do(t, call{proto: proto, path: "/api/v1/configmaps?limit=1"}); r.Status != http.StatusOK {
					t.Errorf("a list beside: %d: %s", r.Status, r.Body)
				}
			}
			_ = first.Body.Close()
			poll.Until(t, patience, "the place is free again", func() bool {
				again := d.send(ctx, t, call{path: watch})
				_ = again.Body.Close()
				return again.StatusCode == http.StatusOK
			})
		})
	}
}

// bigList makes config maps of so many megabytes that no buffer between two processes holds them,
// and returns their list, and a revision that has them all.
func bigList(t *testing.T) (list, revision string) {
	t.Helper()
	return bigListOf(t, strings.Repeat("0123456789abcde\n", 50_000)) // 800 kB
}

// bigListOf is bigList with a text that each of the objects has.
func bigListOf(t *testing.T, text string) (list, revision string) {
	t.Helper()
	ns := newNamespace(t)
	for i := range bigObjects {
		revision = newConfigMap(t, ns, fmt.Sprintf("big-%d", i), map[string]string{"text": text})
	}
	t.Cleanup(func() {
		// Other tests watch all config maps.
		err := admin.CoreV1().ConfigMaps(ns).DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return "/api/v1/namespaces/" + ns + "/configmaps", revision
}

// bigObjects are in a bigList: some 24 MB.
const bigObjects = 30

// TestStall: the answer to a list whose client stops reading is ended after a minute, from memory or
// forwarded, and others go on, on the same connection too.
func TestStall(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Connect: true})
	big, revision := bigList(t)
	const (
		small = "/api/v1/namespaces/team-a/configmaps?resourceVersion="
		said  = "its client does not read it"
	)
	type unread struct {
		what string
		door *door
		res  *http.Response
		call call
	}
	var all []unread
	for name, configs := range ways(p) {
		d := doorOf(t, configs)
		// A few of the same resource tell it: were this test to read the big list, and stand
		// still meanwhile, it would be the client that does not read.
		poll.Until(t, patience, "the list is in memory", func() bool { return isHit(d.do(t, call{path: small + revision})) })
		for path, from := range map[string]string{big + "?resourceVersion=0": "hit", big: "fwd=bypass"} {
			for _, proto := range []string{http1, http2} {
				u := unread{what: name + ", " + from + ", " + proto, door: d, call: call{proto: proto, path: path}}
				u.res = d.send(t.Context(), t, u.call)
				if got := u.res.Header.Get(cacheStatus); u.res.StatusCode != http.StatusOK || !strings.Contains(got, from) {
					t.Errorf("%s: %s, %s", u.what, u.res.Status, got)
				}
				all = append(all, u)
			}
		}
	}
	poll.Until(t, patience, "listproxy ends the answers", func() bool { return strings.Count(p.Log(), said) == len(all) })
	for _, u := range all {
		if r := u.door.do(t, call{proto: u.call.proto, path: small + "0"}); r.Status != http.StatusOK {
			t.Errorf("%s: another list, then: %d", u.what, r.Status)
		}
		n, err := io.Copy(io.Discard, u.res.Body)
		_ = u.res.Body.Close()
		if err == nil || n >= bigObjects*800_000 {
			t.Errorf("%s: the client read %d bytes, %v: it must not take that for the whole", u.what, n, err)
		}
	}
}

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

// TestMaxConnections: one too many waits until another one is closed.
func TestMaxConnections(t *testing.T) {
	harness.Long(t)
	t.Setenv("GOMEMLIMIT", "64MiB") // of listproxy
	const most = 256                // that is the least
	p := startProcess(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed)})
	d := doorOf(t, throughProxy(p))
	open := func() float64 {
		n, _, err := soak.Sum(t.Context(), http.DefaultClient, p.AdminURL()+"/metrics", "listproxy_connections", map[string]string{"port": "clients"})
		expect.NoError(t, err)
		return n
	}
	var conns []io.Closer
	for range most {
		conn, err := net.Dial("tcp", p.Address())
		expect.NoError(t, err)
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	answered := make(chan reply, 1)
	go func() { answered <- d.do(t, call{path: "/version"}) }()
	poll.Until(t, patience, "all connections are open", func() bool { return open() == most })
	select {
	case r := <-answered:
		t.Errorf("there was one too many: %d", r.Status)
	default:
	}
	_ = conns[0].Close()
	if r := <-answered; r.Status != http.StatusOK {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
}

// TestFairness: a client with 50 big lists at a time, which it does not even read, leaves room for
// another's small ones: not one of them is turned away or forwarded. Of its own, those for whose bytes
// no room comes are turned away.
func TestFairness(t *testing.T) {
	harness.Long(t)
	p := startProcess(t, harness.ProxyOptions{
		Upstream: cp.RESTConfig(controlplane.Feed), Connect: true, Args: []string{
			"--max-inflight-bytes", "128Mi", "--max-requests-inflight", "120", "--eager", "pods",
		},
	})
	list, _ := bigList(t)
	big := list + "?resourceVersion=0" // two of them fit into the half that one caller may hold
	newPending(t, controlplane.TeamA, 3)
	greedy, modest := doorOf(t, throughProxy(p)), doorOf(t, throughTunnel(p))
	const small = "/api/v1/namespaces/team-a/pods?resourceVersion=0"
	poll.Until(t, patience, "both lists are in memory", func() bool {
		return isHit(greedy.do(t, call{path: big})) && isHit(modest.do(t, call{path: small, user: controlplane.Alice}))
	})

	const lists = 50
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ends := make(chan int, lists), make(chan error, lists)
	read := make(chan struct{})
	for range lists {
		go func() {
			res := greedy.send(ctx, t, call{path: big})
			begun <- res.StatusCode
			<-read
			_, err := io.Copy(io.Discard, res.Body)
			ends <- errors.Join(err, res.Body.Close())
		}()
	}
	codes, told := map[int]int{}, 0
	for codes[http.StatusOK] < 2 {
		if told == lists {
			t.Fatalf("not even two of the big lists begin: %v", codes)
		}
		codes[await(t, "the first big lists begin", begun)]++
		told++
	}
	for i := range 100 {
		if r := modest.do(t, call{path: small, user: controlplane.Alice}); r.Status != http.StatusOK || !isHit(r) {
			t.Fatalf("small list %d: %d, %s: %s", i, r.Status, r.cacheStatus, r.Body)
		}
	}
	close(read)
	for range lists - told {
		codes[await(t, "the other big lists begin or are turned away", begun)]++
	}
	for range lists {
		// On a slow machine the small ones take more than the minute after which an answer is ended.
		if err := await(t, "the big lists end", ends); err != nil && !strings.Contains(p.Log(), "its client does not read it") {
			t.Error(err)
		}
	}
	if codes[http.StatusOK]+codes[http.StatusTooManyRequests] != lists {
		t.Errorf("the big lists: %v", codes)
	}
}
