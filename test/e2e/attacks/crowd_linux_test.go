package attacks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// The addresses of the two callers. On Linux all of 127.0.0.0/8 is local.
	workerAddress, greedyAddress = "127.0.0.10", "127.0.0.20"

	// crowdPatience ends a wait for something that must come; no test passes because of it.
	crowdPatience = 5 * time.Minute
	// cancelAfter is long before the end of a request's review.
	cancelAfter = 20 * time.Millisecond
	// crowdPlaces and crowdBytes are listproxy's bounds, of which one caller may have half.
	crowdPlaces = 200
	crowdBytes  = 2 << 20

	shopPods = "/api/v1/namespaces/shop/pods"
	watching = "?watch=true&allowWatchBookmarks=true&resourceVersion="
	// fewPods selects about three pods, somePods a tenth of all. Eighty lists of somePods are more than crowdBytes.
	fewPods  = "&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
	somePods = "&labelSelector=bench.listproxy.io%2Fhundredth%20in%20(1,2,3,4,5,6,7,8,9,10)"
)

// crowdRig is what the cases of TestCrowding share: a control plane with its defaults, and a listproxy with pods in memory.
type crowdRig struct {
	proxy    *harness.Proxy
	worker   string // the token of the caller who must not be crowded out
	bare     string // the token of an account without rights
	greedy   string // the token of the caller who sends the attacks
	followed string // the pod that the worker writes and watches
}

// A crowdAttack is many requests at a time whose answers nobody reads.
type crowdAttack struct {
	name       string
	concurrent int
	cancelled  bool // each request is cancelled after cancelAfter, and the next follows
	request    func(i int) (token, target string)
}

// attacks returns the cases of TestCrowding.
func (r *crowdRig) attacks() []crowdAttack {
	always := func(target string) func(int) (string, string) {
		return func(int) (string, string) { return r.greedy, target }
	}
	return []crowdAttack{
		{name: "made-up tokens", concurrent: 10, cancelled: true, request: func(int) (string, string) {
			return "made-up-" + rand.Text(), shopPods + "?resourceVersion=0" + fewPods
		}},
		{name: "no rights", concurrent: 10, cancelled: true, request: func(i int) (string, string) { // each needs its own review
			return r.bare, fmt.Sprintf("/api/v1/namespaces/nowhere-%d/pods?resourceVersion=0&labelSelector=n%%3D%d", i%97, i)
		}},
		{name: "cancelled watches", concurrent: 10, cancelled: true, request: func(i int) (string, string) {
			// Current, past, future and impossible revisions.
			revisions := []string{"0", "0", "1", "1000000", "-1", "9223372036854775807", "18446744073709551616"}
			return r.greedy, shopPods + watching + revisions[i%len(revisions)] + fewPods
		}},
		{name: "watches", concurrent: crowdPlaces * 5 / 4, request: always(shopPods + watching + "0" + fewPods)},
		{name: "lists", concurrent: 80, request: always(shopPods + "?resourceVersion=0" + somePods)},
		{name: "wide events", concurrent: 80, request: always(shopPods + watching + "0&fieldSelector=metadata.name%3D" + r.followed)},
		{name: "streaming lists", concurrent: 80, request: always("/api/v1/pods?resourceVersion=0&" + ask.StreamingList)},
	}
}

// TestCrowding: while one caller asks for too much, another caller gets everything that it asks for, and from memory what
// listproxy keeps. After the attack, the goroutines and file descriptors of the attack are gone.
func TestCrowding(t *testing.T) {
	harness.Long(t)
	r := newCrowdRig(t)
	for _, a := range r.attacks() {
		t.Run(a.name, func(t *testing.T) {
			goroutines, descriptors := r.metric(t, "go_goroutines"), r.metric(t, "process_open_fds")
			stop := r.attack(t, a)
			r.work(t)
			stop()
			const slack = 40 // idle connections to kube-apiserver stay open for a while
			poll.Until(t, crowdPatience, "goroutines and descriptors of the attack are gone", func() bool {
				return r.metric(t, "go_goroutines") <= goroutines+slack && r.metric(t, "process_open_fds") <= descriptors+slack
			})
		})
	}
}

// newCrowdRig starts and fills a control plane, and runs a listproxy in front of it.
func newCrowdRig(t *testing.T) *crowdRig {
	t.Helper()
	plane := harness.RunControlPlane(t, controlplane.Options{})
	made := workload.Pods{Nodes: 50}
	r := &crowdRig{followed: made.Pod(0, "shop").Name}
	expect.NoError(t, workload.Fill(t.Context(), plane, made, 300))
	for account, token := range map[string]*string{"worker": &r.worker, "bare": &r.bare, "greedy": &r.greedy} {
		var err error
		*token, err = plane.CreateServiceAccountToken(t.Context(), controlplane.TeamA, account)
		expect.NoError(t, err)
	}
	expect.NoError(t, plane.GrantAll(t.Context(), controlplane.Grant{
		To: []string{"team-a/worker", "team-a/greedy"}, Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch,patch", "", "pods,configmaps")},
	}))
	r.proxy = harness.RunProxy(t, harness.ProxyOptions{
		Upstream: plane.RESTConfig(controlplane.Feed),
		// Without the log of requests, which the harness keeps in memory, and without the self-check, whose requests would
		// compete with the worker's.
		Args: []string{
			"--log-level", "info", "--eager", "pods", "--self-check-interval", "0", "--watches", "--consistent-lists=true",
			"--max-long-running-requests", strconv.Itoa(crowdPlaces), "--max-inflight-bytes", strconv.Itoa(crowdBytes),
		},
	})
	for _, token := range []string{r.worker, r.greedy} {
		c := r.caller(workerAddress, token, nil)
		_, err := c.AwaitMemory(t.Context(), "/api/v1/pods?limit=1&resourceVersion=0")
		expect.NoError(t, err)
		c.HTTP.CloseIdleConnections()
	}
	return r
}

// caller returns a client that asks listproxy over HTTP/2 from an address, by connections of its own. A nil http2 means
// the default settings.
func (r *crowdRig) caller(address, token string, http2 *http.HTTP2Config) *ask.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.proxy.CA())
	transport := &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}, ForceAttemptHTTP2: true,
		HTTP2: http2,
	}
	return &ask.Client{Base: r.proxy.URL(), Header: http.Header{"Authorization": {"Bearer " + token}}, HTTP: &http.Client{Transport: transport}}
}

// metric returns the sum of the series of a metric of listproxy's.
func (r *crowdRig) metric(t *testing.T, name string) float64 {
	t.Helper()
	sum, _, err := r.proxy.Metric(t.Context(), name, nil)
	expect.NoError(t, err)
	return sum
}

// attack sends an attack until stop is called. It returns when each of the concurrent requests was sent once.
func (r *crowdRig) attack(t *testing.T, a crowdAttack) (stop func()) {
	t.Helper()
	const connections = 4
	var clients [connections]*ask.Client
	for i := range clients {
		// With this window almost nothing of an answer is sent until it is read. The rest stays in listproxy's memory.
		clients[i] = r.caller(greedyAddress, "", &http.HTTP2Config{MaxReceiveBufferPerStream: 1})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sent, answered atomic.Int64
	var all sync.WaitGroup
	for first := range a.concurrent {
		all.Go(func() {
			for i := first; ctx.Err() == nil; i += a.concurrent {
				requestCtx, cancelRequest := context.WithCancel(ctx)
				if a.cancelled {
					requestCtx, cancelRequest = context.WithTimeout(ctx, cancelAfter)
				}
				token, target := a.request(i)
				res, err := clients[first%connections].With("Authorization", "Bearer "+token).Open(requestCtx, http.MethodGet, target, nil)
				if err == nil && res.StatusCode == http.StatusOK {
					answered.Add(1)
				}
				sent.Add(1)
				<-requestCtx.Done()
				cancelRequest()
				if err == nil {
					_ = res.Body.Close()
				}
			}
		})
	}
	poll.Until(t, crowdPatience, "each concurrent request was sent", func() bool { return sent.Load() >= int64(a.concurrent) })
	return func() {
		cancel()
		all.Wait()
		for _, c := range clients {
			c.HTTP.CloseIdleConnections()
		}
		if !a.cancelled && answered.Load() == 0 {
			t.Error("no request of the attack was answered")
		}
	}
}

// work is what the worker does during an attack. It lists with another selector each time, so that each list needs a review
// of its own. It opens watches. It writes a large annotation to a pod, and reads the write in a watch of the pod.
func (r *crowdRig) work(t *testing.T) {
	t.Helper()
	const rounds, annotationBytes = 15, 64 << 10
	ctx, cancel := context.WithTimeout(t.Context(), crowdPatience)
	defer cancel()
	worker := r.caller(workerAddress, r.worker, nil)
	defer worker.HTTP.CloseIdleConnections()
	requests, forwarded := 0, 0
	open := func(target string) *http.Response {
		t.Helper()
		res, err := worker.Open(ctx, http.MethodGet, target, nil)
		expect.NoError(t, err)
		requests++
		if res.StatusCode != http.StatusOK {
			t.Errorf("the worker gets status %d for %s", res.StatusCode, target)
		}
		if !ask.FromMemory(res.Header) {
			forwarded++
			t.Logf("forwarded: %s", res.Header.Get("Cache-Status"))
		}
		return res
	}
	following := open(shopPods + watching + "0&fieldSelector=metadata.name%3D" + r.followed)
	defer func() { _ = following.Body.Close() }()
	followed := events.NewReader(following.Body, ask.JSON)
	for range rounds {
		selector := workload.HundredthLabel + " in (1,2,3,4,5,6,7,8,9,10),other!=" + rand.Text()
		for _, query := range []string{"?resourceVersion=0&labelSelector=" + url.QueryEscape(selector), watching + "0" + fewPods} {
			res := open(shopPods + query)
			_, err := res.Body.Read(make([]byte, 1))
			expect.NoError(t, err)
			_ = res.Body.Close()
		}
		stamp := rand.Text() + strings.Repeat("x", annotationBytes)
		_, err := worker.Do(ctx, http.MethodPatch, shopPods+"/"+r.followed, kinds.Touch(stamp))
		expect.NoError(t, err)
		for event := (events.Event{}); event.Meta.Annotations["touched"] != stamp; {
			event, err = followed.Next()
			expect.NoError(t, err)
		}
	}
	if forwarded > requests/10 { // on a busy machine a review may fail without the attack
		t.Errorf("%d of the worker's %d requests were forwarded, want at most a tenth", forwarded, requests)
	}
}
