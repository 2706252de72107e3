package attacks

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/events"
	"github.com/listproxy/listproxy/test/harness/hop"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/workload"
)

const (
	// Where the callers come from. Linux has all of 127.0.0.0/8 without being told.
	otherAddress = "127.0.0.10"
	crowdAddress = "127.0.0.20"

	// crowdPatience ends a wait; no test passes because of it, and nothing depends on how fast the
	// machine is.
	crowdPatience = 5 * time.Minute
	// crowdPlaces and crowdBytes are listproxy's bounds, of which one caller may have half.
	crowdPlaces = 200
	crowdBytes  = 2 << 20
	// unread is how many answers of one attack nobody reads.
	unread = 80

	// madeUpPrefix begins the tokens that nobody has given out.
	madeUpPrefix = "made-up-"

	shopPods = "/api/v1/namespaces/shop/pods"
	watching = "?watch=true&allowWatchBookmarks=true&resourceVersion="
	// fewPods and somePods select about three, and a tenth: eighty such lists are more than crowdBytes.
	fewPods  = "&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
	somePods = "&labelSelector=bench.listproxy.io%2Fhundredth%20in%20(1,2,3,4,5,6,7,8,9,10)"
)

// crowdPods are what is listed.
var crowdPods = workload.Pods{Nodes: 50}

// crowdRig is what all cases of TestCrowding share: a control plane of their own, as it is by
// default, and a listproxy that has pods in memory.
type crowdRig struct {
	proxy *harness.Proxy
	slow  atomic.Pointer[slowReviews]

	worker string    // the other caller's token
	bare   string    // of an account without rights
	greedy [2]string // of one account
}

// slowReviews says whose reviews get no answer, and until when. So whether they take others' places
// does not depend on how fast the machine is.
type slowReviews struct {
	of    string // what their tokens begin with
	until context.Context
}

// A crowdAttack attacks until its context ends, and returns how much of it has begun. It calls ready when
// all of it is in place.
type crowdAttack func(ctx context.Context, r *crowdRig, ready func()) (begun int64)

// TestCrowding lets one caller try to crowd out another: all that the other caller asks for meanwhile
// must come, and from memory what listproxy keeps. Of the attack nothing stays.
func TestCrowding(t *testing.T) {
	harness.Long(t)
	r := newCrowdRig(t)
	for _, c := range []struct {
		name   string
		slow   string
		attack crowdAttack
	}{
		{"made-up tokens", madeUpPrefix, storm(func(int) (string, string) {
			return madeUpPrefix + rand.Text(), shopPods + "?resourceVersion=0" + fewPods
		})},
		{"no rights", r.bare, storm(func(i int) (string, string) { // no review can be shared
			return r.bare, fmt.Sprintf("/api/v1/namespaces/nowhere-%d/pods?resourceVersion=0&labelSelector=n%%3D%d", i%97, i)
		})},
		{"streams given up", "", storm(func(i int) (string, string) { // from the past, the future, and nowhere
			revisions := []string{"0", "0", "1", "1000000", "-1", "9223372036854775807", "18446744073709551616"}
			return r.greedy[0], shopPods + watching + revisions[i%len(revisions)] + fewPods
		})},
		{"streams that stay", "", streams(crowdPlaces*5/4, shopPods+watching+"0"+fewPods, true)},
		{"lists that nobody reads", "", streams(unread, shopPods+"?resourceVersion=0"+somePods, false)},
		{"wide events that nobody reads", "", streams(unread, shopPods+watching+"0&fieldSelector=metadata.name%3D"+followed(), false)},
		{"streaming lists that nobody reads", "", streams(unread, "/api/v1/pods?resourceVersion=0&"+ask.StreamingList, false)},
	} {
		t.Run(c.name, func(t *testing.T) {
			goroutines, descriptors := r.metric(t, "go_goroutines"), r.metric(t, "process_open_fds")
			attacking, stop := context.WithCancel(t.Context())
			defer stop()
			if c.slow != "" {
				r.slow.Store(&slowReviews{c.slow, attacking})
			}
			ready, begun := make(chan struct{}), make(chan int64, 1)
			go func() { begun <- c.attack(attacking, r, func() { close(ready) }) }()
			select {
			case <-ready:
			case <-time.After(crowdPatience):
				t.Fatal("the attack does not begin")
			}
			r.work(t)
			stop()
			if <-begun == 0 {
				t.Error("there was no attack")
			}
			r.slow.Store(nil)
			const spare = 40 // connections to kube-apiserver that idle for a while, and the like
			poll.Until(t, crowdPatience, "what the attack took is given back", func() bool {
				return r.metric(t, "go_goroutines") <= goroutines+spare && r.metric(t, "process_open_fds") <= descriptors+spare
			})
		})
	}
}

func newCrowdRig(t *testing.T) *crowdRig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), crowdPatience)
	defer cancel()
	plane, r := harness.RunControlPlane(t, controlplane.Options{}), &crowdRig{}
	expect.NoError(t, workload.Fill(ctx, plane, crowdPods, 300, func(int) {}))
	for token, account := range map[*string]string{&r.worker: "worker", &r.bare: "bare", &r.greedy[0]: "greedy", &r.greedy[1]: "greedy"} {
		var err error
		*token, err = plane.CreateServiceAccountToken(ctx, controlplane.TeamA, account)
		expect.NoError(t, err)
	}
	expect.NoError(t, plane.GrantAll(ctx, controlplane.Grant{
		To: []string{"team-a/worker", "team-a/greedy"}, Rules: []rbacv1.PolicyRule{controlplane.Rule("get,list,watch,patch", "", "pods")},
	}))
	upstream := hop.Run(t, plane.URL(), plane.CA())
	upstream.OnRequest(func(_ http.ResponseWriter, req *http.Request) bool {
		slow := r.slow.Load()
		if slow == nil || !strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") ||
			!strings.HasPrefix(req.Header.Get("Authorization"), "Bearer "+slow.of) {
			return false
		}
		select {
		case <-req.Context().Done():
		case <-slow.until.Done():
		}
		return true
	})
	r.proxy = harness.RunProxy(t, harness.ProxyOptions{
		Upstream: upstream.RESTConfig(plane.RESTConfig(controlplane.Feed)),
		// Without the log of requests, which is kept in memory here. The self-check asks on its own
		// account.
		Args: []string{
			"--log-level", "info", "--eager", "pods", "--self-check-interval", "0", "--watches", "--consistent-lists=true",
			"--max-long-running-requests", strconv.Itoa(crowdPlaces), "--max-inflight-bytes", strconv.Itoa(crowdBytes),
		},
	})
	for _, token := range []string{r.worker, r.greedy[0], r.greedy[1]} {
		c := r.caller(otherAddress, token)
		poll.Until(t, crowdPatience, "pods come from memory", func() bool {
			a, err := c.Get(ctx, "/api/v1/pods?limit=1&resourceVersion=0")
			return err == nil && a.FromMemory()
		})
		c.HTTP.CloseIdleConnections()
	}
	return r
}

// caller asks listproxy over HTTP/2, by connections of its own, from an address.
func (r *crowdRig) caller(address, token string) *ask.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.proxy.CA())
	return &ask.Client{
		Base: r.proxy.URL(), Header: http.Header{"Authorization": {"Bearer " + token}},
		HTTP: &http.Client{Transport: &http.Transport{
			DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, CurvePreferences: cheapCurves}, ForceAttemptHTTP2: true,
		}},
	}
}

// metric is a figure of listproxy's.
func (r *crowdRig) metric(t *testing.T, name string) float64 {
	t.Helper()
	sum, _, err := r.proxy.Metric(t.Context(), name, nil)
	expect.NoError(t, err)
	return sum
}

// followed is the pod that the other caller changes and follows.
func followed() string { return crowdPods.Pod(0, "shop").Name }

// work is what the other caller does beside an attack. It lists, over new connections too, always with
// another selector, so that each list needs a review, as those of a caller who begins to work do. It
// opens watches. And it follows a pod that it writes, with a wide annotation.
func (r *crowdRig) work(t *testing.T) {
	t.Helper()
	const rounds, wide = 15, 64 << 10
	ctx, cancel := context.WithTimeout(t.Context(), crowdPatience)
	defer cancel()
	worker := r.caller(otherAddress, r.worker)
	defer worker.HTTP.CloseIdleConnections()
	asked, forwarded := 0, 0
	served := func(code int, header http.Header) {
		t.Helper()
		if asked++; code != http.StatusOK {
			t.Errorf("the other caller gets %d", code)
		}
		if !ask.FromMemory(header) {
			forwarded++
			t.Logf("forwarded: %s", header.Get("Cache-Status"))
		}
	}
	list := func(c *ask.Client) {
		t.Helper()
		var hundredths []string
		for i := range 10 { // about thirty pods
			hundredths = append(hundredths, strconv.Itoa((asked+i)%100))
		}
		selector := workload.HundredthLabel + " in (" + strings.Join(hundredths, ",") + "),other!=" + rand.Text()
		a, err := c.Get(ctx, shopPods+"?resourceVersion=0&labelSelector="+url.QueryEscape(selector))
		expect.NoError(t, err)
		served(a.Code, a.Header)
	}
	watch := func(query string) *http.Response {
		t.Helper()
		res, err := worker.Open(ctx, http.MethodGet, shopPods+watching+"0"+query, nil)
		expect.NoError(t, err)
		served(res.StatusCode, res.Header)
		return res
	}
	following := watch("&fieldSelector=metadata.name%3D" + followed())
	defer func() { _ = following.Body.Close() }()
	told := events.NewReader(following.Body, ask.JSON)
	for round := range rounds {
		list(worker)
		if round%10 == 0 {
			anew := r.caller(otherAddress, r.worker)
			list(anew)
			anew.HTTP.CloseIdleConnections()
		}
		res := watch(fewPods)
		_, err := res.Body.Read(make([]byte, 1))
		expect.NoError(t, err)
		_ = res.Body.Close()
		stamp := rand.Text() + strings.Repeat("x", wide)
		_, err = worker.Do(ctx, http.MethodPatch, shopPods+"/"+followed(), kinds.Touch(stamp))
		expect.NoError(t, err)
		for event := (events.Event{}); event.Meta.Annotations["touched"] != stamp; {
			event, err = told.Next()
			expect.NoError(t, err)
		}
	}
	if forwarded > max(1, asked/20) { // a review can fail by itself on a machine that stands still
		t.Errorf("of what the other caller asked for %d of %d were forwarded", forwarded, asked)
	}
}

// storm sends lists or watches of this token and target, each of which is given up at once: long
// before its review would have ended.
func storm(request func(i int) (token, target string)) crowdAttack {
	const aSecond, connections, atOnce, givenUp = 300, 4, 100, 20 * time.Millisecond
	return func(ctx context.Context, r *crowdRig, ready func()) (begun int64) {
		var clients []*ask.Client
		for range connections {
			c := r.caller(crowdAddress, "")
			defer c.HTTP.CloseIdleConnections()
			clients = append(clients, c)
		}
		ready()
		var all errgroup.Group
		all.SetLimit(atOnce)
		for i := range poll.Ticks(ctx, time.Second/aSecond) {
			begun++
			token, target := request(i)
			all.Go(func() error {
				one, cancel := context.WithTimeout(ctx, givenUp)
				defer cancel()
				_, _ = clients[i%connections].With("Authorization", "Bearer "+token).Get(one, target)
				return nil
			})
		}
		_ = all.Wait()
		return begun
	}
}

// streams opens so many with both tokens, and reads what comes; or reads nothing, and has windows of one
// byte. It is ready when each has a header.
func streams(count int, target string, read bool) crowdAttack {
	return func(ctx context.Context, r *crowdRig, ready func()) int64 {
		const connections = 4
		var begun atomic.Int64
		var clients []*ask.Client
		for i := range connections {
			c := r.caller(crowdAddress, r.greedy[i%2])
			defer c.HTTP.CloseIdleConnections()
			if !read {
				c.HTTP.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 1}
			}
			clients = append(clients, c)
		}
		var placed, all sync.WaitGroup
		for i := range count {
			placed.Add(1)
			all.Go(func() {
				res, err := clients[i%connections].Open(ctx, http.MethodGet, target, nil)
				placed.Done()
				if err != nil {
					return
				}
				defer func() { _ = res.Body.Close() }()
				if res.StatusCode == http.StatusOK {
					begun.Add(1)
				}
				if read {
					_, _ = io.Copy(io.Discard, res.Body)
				}
				<-ctx.Done()
			})
		}
		placed.Wait()
		ready()
		all.Wait()
		return begun.Load()
	}
}
