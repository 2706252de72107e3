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
	// Where the callers come from. Linux has all of 127.0.0.0/8 without being told.
	otherAddress, crowdAddress = "127.0.0.10", "127.0.0.20"

	// crowdPatience ends a wait; no test passes because of it, and nothing depends on how fast the
	// machine is.
	crowdPatience = 5 * time.Minute
	// givenUp is when a request is given up at once: long before its review would have ended.
	givenUp = 20 * time.Millisecond
	// crowdPlaces and crowdBytes are listproxy's bounds, of which one caller may have half.
	crowdPlaces = 200
	crowdBytes  = 2 << 20

	shopPods = "/api/v1/namespaces/shop/pods"
	watching = "?watch=true&allowWatchBookmarks=true&resourceVersion="
	// fewPods and somePods select about three, and a tenth: eighty such lists are more than crowdBytes.
	fewPods  = "&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
	somePods = "&labelSelector=bench.listproxy.io%2Fhundredth%20in%20(1,2,3,4,5,6,7,8,9,10)"
)

// crowdRig is what all cases of TestCrowding share: a control plane of their own, as it is by
// default, and a listproxy that has pods in memory.
type crowdRig struct {
	proxy                *harness.Proxy
	worker, bare, greedy string // tokens: the other caller's, of an account without rights, and of one that wants all
	followed             string // the pod that the other caller changes and follows
}

// A crowdAttack is many requests at a time, of which nobody reads the answers. Where each is given up at
// once, the next one follows it.
type crowdAttack struct {
	name    string
	atOnce  int
	givenUp bool
	request func(i int) (token, target string)
}

func (r *crowdRig) attacks() []crowdAttack {
	stay := func(target string) func(int) (string, string) {
		return func(int) (string, string) { return r.greedy, target }
	}
	return []crowdAttack{
		{"made-up tokens", 10, true, func(int) (string, string) { return "made-up-" + rand.Text(), shopPods + "?resourceVersion=0" + fewPods }},
		{"no rights", 10, true, func(i int) (string, string) { // no review can be shared
			return r.bare, fmt.Sprintf("/api/v1/namespaces/nowhere-%d/pods?resourceVersion=0&labelSelector=n%%3D%d", i%97, i)
		}},
		{"streams given up", 10, true, func(i int) (string, string) { // from the past, the future, and nowhere
			revisions := []string{"0", "0", "1", "1000000", "-1", "9223372036854775807", "18446744073709551616"}
			return r.greedy, shopPods + watching + revisions[i%len(revisions)] + fewPods
		}},
		{"streams", crowdPlaces * 5 / 4, false, stay(shopPods + watching + "0" + fewPods)},
		{"lists", 80, false, stay(shopPods + "?resourceVersion=0" + somePods)},
		{"wide events", 80, false, stay(shopPods + watching + "0&fieldSelector=metadata.name%3D" + r.followed)},
		{"streaming lists", 80, false, stay("/api/v1/pods?resourceVersion=0&" + ask.StreamingList)},
	}
}

// TestCrowding lets one caller try to crowd out another: all that the other caller asks for meanwhile
// must come, and from memory what listproxy keeps. Of the attack nothing stays.
func TestCrowding(t *testing.T) {
	harness.Long(t)
	r := newCrowdRig(t)
	for _, a := range r.attacks() {
		t.Run(a.name, func(t *testing.T) {
			goroutines, descriptors := r.metric(t, "go_goroutines"), r.metric(t, "process_open_fds")
			stop := r.begin(t, a)
			r.work(t)
			stop()
			const spare = 40 // connections to kube-apiserver that idle for a while, and the like
			poll.Until(t, crowdPatience, "what the attack took is given back", func() bool {
				return r.metric(t, "go_goroutines") <= goroutines+spare && r.metric(t, "process_open_fds") <= descriptors+spare
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
		// Without the log of requests, which is kept in memory here. The self-check asks on its own
		// account.
		Args: []string{
			"--log-level", "info", "--eager", "pods", "--self-check-interval", "0", "--watches", "--consistent-lists=true",
			"--max-long-running-requests", strconv.Itoa(crowdPlaces), "--max-inflight-bytes", strconv.Itoa(crowdBytes),
		},
	})
	for _, token := range []string{r.worker, r.greedy} {
		c := r.caller(otherAddress, token, nil)
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

// metric is a figure of listproxy's.
func (r *crowdRig) metric(t *testing.T, name string) float64 {
	t.Helper()
	sum, _, err := r.proxy.Metric(t.Context(), name, nil)
	expect.NoError(t, err)
	return sum
}

// begin attacks until stop is called. It returns when all of the attack is in place.
func (r *crowdRig) begin(t *testing.T, a crowdAttack) (stop func()) {
	t.Helper()
	const connections = 4
	var clients [connections]*ask.Client
	for i := range clients {
		// Almost nothing is sent of an answer that is not read: the rest stays with listproxy.
		clients[i] = r.caller(crowdAddress, "", &http.HTTP2Config{MaxReceiveBufferPerStream: 1})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tried, answered atomic.Int64
	var all sync.WaitGroup
	for who := range a.atOnce {
		all.Go(func() {
			for i := who; ctx.Err() == nil; i += a.atOnce {
				one, end := ctx, func() {}
				if a.givenUp {
					one, end = context.WithTimeout(ctx, givenUp)
				}
				token, target := a.request(i)
				res, err := clients[who%connections].With("Authorization", "Bearer "+token).Open(one, http.MethodGet, target, nil)
				if err == nil && res.StatusCode == http.StatusOK {
					answered.Add(1)
				}
				tried.Add(1)
				<-one.Done()
				if end(); err == nil {
					_ = res.Body.Close()
				}
			}
		})
	}
	poll.Until(t, crowdPatience, "the attack is in place", func() bool { return tried.Load() >= int64(a.atOnce) })
	return func() {
		cancel()
		all.Wait()
		for _, c := range clients {
			c.HTTP.CloseIdleConnections()
		}
		if !a.givenUp && answered.Load() == 0 {
			t.Error("there was no attack")
		}
	}
}

// work is what the other caller does beside an attack. It lists, always with another selector, so that
// each list needs a review, as those of a caller who begins to work do. It opens watches. And it follows a
// pod that it writes, with a wide annotation.
func (r *crowdRig) work(t *testing.T) {
	t.Helper()
	const rounds, wide = 15, 64 << 10
	ctx, cancel := context.WithTimeout(t.Context(), crowdPatience)
	defer cancel()
	worker := r.caller(otherAddress, r.worker, nil)
	defer worker.HTTP.CloseIdleConnections()
	asked, forwarded := 0, 0
	open := func(target string) *http.Response {
		t.Helper()
		res, err := worker.Open(ctx, http.MethodGet, target, nil)
		expect.NoError(t, err)
		if asked++; res.StatusCode != http.StatusOK {
			t.Errorf("the other caller gets %d", res.StatusCode)
		}
		if !ask.FromMemory(res.Header) {
			forwarded++
			t.Logf("forwarded: %s", res.Header.Get("Cache-Status"))
		}
		return res
	}
	following := open(shopPods + watching + "0&fieldSelector=metadata.name%3D" + r.followed)
	defer func() { _ = following.Body.Close() }()
	told := events.NewReader(following.Body, ask.JSON)
	for range rounds {
		selector := workload.HundredthLabel + " in (1,2,3,4,5,6,7,8,9,10),other!=" + rand.Text()
		for _, query := range []string{"?resourceVersion=0&labelSelector=" + url.QueryEscape(selector), watching + "0" + fewPods} {
			res := open(shopPods + query)
			_, err := res.Body.Read(make([]byte, 1))
			expect.NoError(t, err)
			_ = res.Body.Close()
		}
		stamp := rand.Text() + strings.Repeat("x", wide)
		_, err := worker.Do(ctx, http.MethodPatch, shopPods+"/"+r.followed, kinds.Touch(stamp))
		expect.NoError(t, err)
		for event := (events.Event{}); event.Meta.Annotations["touched"] != stamp; {
			event, err = told.Next()
			expect.NoError(t, err)
		}
	}
	if forwarded > asked/10 { // a review can fail by itself on a machine that stands still
		t.Errorf("of what the other caller asked for %d of %d were forwarded", forwarded, asked)
	}
}
