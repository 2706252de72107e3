package attacks

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/time/rate"
)

// tally counts what comes of an attack's requests, from any goroutine.
type tally struct {
	mu     sync.Mutex
	sent   int
	counts map[string]int
}

func (c *tally) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
}

func (c *tally) end(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[what]++
}

// ended is how many have ended.
func (c *tally) ended() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.counts {
		n += count
	}
	return n
}

const (
	// givenUp is when an attacker resets a list: long before the review would have ended.
	givenUp = 20 * time.Millisecond
	// stormConnections are those that its lists share.
	stormConnections = 4
	// stormAtOnce bounds its lists at a time.
	stormAtOnce = 100
)

// storm sends so many lists or watches a second. Each is reset after givenUp.
func storm(lists int, token, target func(*side, int) string) crowdAttack {
	return func(ctx context.Context, s *side, ready func(), counts *tally) {
		clients := make([]*http.Client, stormConnections)
		for i := range clients {
			clients[i] = s.client(crowdAddress)
			defer clients[i].CloseIdleConnections()
		}
		var (
			all    sync.WaitGroup
			pace   = rate.NewLimiter(rate.Limit(lists), 10)
			places = make(chan struct{}, stormAtOnce)
		)
		s.get(ctx, clients[0], token(s, 0), anyList(s, 0)) // so that the token is accepted, if it can be
		ready()
		for i := 0; pace.Wait(ctx) == nil; i++ {
			places <- struct{}{}
			counts.begin()
			all.Go(func() {
				defer func() { <-places }()
				one, cancel := context.WithTimeout(ctx, givenUp)
				defer cancel()
				res, err := s.open(one, clients[i%len(clients)], token(s, i), target(s, i))
				if err != nil {
					counts.end("reset")
					return
				}
				defer func() { _ = res.Body.Close() }()
				_, _ = io.Copy(io.Discard, res.Body)
				counts.end(strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Cache-Status"))))
			})
		}
		all.Wait()
	}
}

// madeUpPrefix begins the tokens that nobody has given out.
const madeUpPrefix = "made-up-"

// madeUp is one of them.
func madeUp(*side, int) string { return madeUpPrefix + rand.Text() }

// withoutRights is the token of an account that has none.
func withoutRights(s *side, _ int) string { return s.bare }

// anyList is a list of few pods.
func anyList(*side, int) string {
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
}

// someList is a list of a tenth of all pods: eighty of them are more than crowdBytes.
func someList(*side) string {
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&labelSelector=bench.listproxy.io%2Fhundredth%20in%20(1,2,3,4,5,6,7,8,9,10)"
}

// anotherList is one that nobody has asked for, so that no review can be shared.
func anotherList(_ *side, i int) string {
	return fmt.Sprintf("/api/v1/namespaces/nowhere-%d/pods?resourceVersion=0&labelSelector=n%%3D%d", i%97, i)
}

func greedyToken(s *side, _ int) string { return s.greedy[0] }

// fewPods selects about three.
const fewPods = "&labelSelector=bench.listproxy.io%2Fhundredth%3D1"

// watched is a target to watch.
func watched(path, query string) string {
	return path + "?watch=true&allowWatchBookmarks=true&" + query
}

// revision is one that has been reached.
func (s *side) revision() uint64 {
	s.Helper()
	client := s.client(otherAddress)
	defer client.CloseIdleConnections()
	res, err := s.open(s.Context(), client, s.worker, "/api/v1/pods?limit=1&resourceVersion=0")
	s.must(err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	s.must(err)
	list, err := ask.ReadList(ask.JSON, body)
	s.must(err)
	return list.Revision
}

// placed waits until so many requests have a header or were turned away, and none waits for its turn
// in listproxy.
func (s *side) placed(counts *tally, all int) {
	s.Helper()
	poll.Until(s, crowdPatience, "the attack is in place", func() bool {
		return counts.ended() == all && s.sum(http.DefaultClient, s.proxy.AdminURL()+"/metrics", "listproxy_inflight_waiting", nil) == 0
	})
}

// staying opens so many watches with both tokens, a hundred on a connection, and reads what comes. It is ready when
// each has a header or was turned away.
func staying(watches int) crowdAttack {
	return func(ctx context.Context, s *side, ready func(), counts *tally) {
		const onOne = 100
		var (
			all  sync.WaitGroup
			path = watched("/api/v1/pods", "resourceVersion="+strconv.FormatUint(s.revision(), 10)+fewPods)
		)
		for opened := 0; opened < watches; opened += onOne {
			client, token := s.client(crowdAddress), s.greedy[opened/onOne%2]
			defer client.CloseIdleConnections()
			s.get(ctx, client, token, anyList(s, 0)) // so that it is accepted, and the connection is there
			for range min(onOne, watches-opened) {
				counts.begin()
				all.Go(func() {
					res, err := s.open(ctx, client, token, path)
					if err != nil {
						counts.end("no answer")
						return
					}
					defer func() { _ = res.Body.Close() }()
					counts.end(strings.TrimSpace(fmt.Sprintf("%d %s", res.StatusCode, res.Header.Get("Cache-Status"))))
					_, _ = io.Copy(io.Discard, res.Body)
				})
			}
		}
		s.placed(counts, watches)
		ready()
		<-ctx.Done()
		all.Wait()
	}
}

// stalled opens so many streams with each token, a hundred on a connection, whose answers are not
// read: the window of each is 0. It is ready when each has a header or was turned away.
func stalled(each int, target func(s *side) string) crowdAttack {
	return func(ctx context.Context, s *side, ready func(), counts *tally) {
		const onOne = 100 // kube-apiserver's bound
		var (
			all  sync.WaitGroup
			path = target(s)
		)
		for i, token := range s.greedy {
			client := s.client(crowdAddress)
			s.get(ctx, client, token, anyList(s, i)) // so that it is accepted
			client.CloseIdleConnections()
			for opened := 0; opened < each; opened += onOne {
				streams := min(onOne, each-opened)
				for range streams {
					counts.begin()
				}
				all.Go(func() { s.stalledConnection(ctx, counts, streams, token, path) })
			}
		}
		s.placed(counts, each*len(s.greedy))
		ready()
		<-ctx.Done()
		all.Wait()
	}
}

// stalledConnection opens streams and reads only how their answers begin.
func (s *side) stalledConnection(ctx context.Context, counts *tally, streams int, token, path string) {
	conn, err := s.dial(ctx, crowdAddress, http2)
	if err != nil {
		for range streams {
			counts.end("not connected")
		}
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, _ = io.WriteString(conn, h2.ClientPreface)
	w := &wire{framer: h2.NewFramer(conn, conn), fill: strings.NewReplacer(), opened: map[uint32]bool{}}
	w.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.coder = hpack.NewEncoder(&w.block)
	_ = w.framer.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
	for i := range streams {
		w.headers(uint32(2*i+1), true, field{":method", "GET"}, field{":scheme", "https"}, field{":authority", "x"},
			field{":path", path}, field{"authorization", "Bearer " + token}, field{"accept", "application/json"})
	}
	answered := map[uint32]bool{}
	answer := func(stream uint32, what string) {
		if !answered[stream] {
			answered[stream] = true
			counts.end(what)
		}
	}
	for ctx.Err() == nil {
		frame, err := w.framer.ReadFrame()
		if err != nil {
			break
		}
		switch f := frame.(type) {
		case *h2.SettingsFrame:
			if !f.IsAck() {
				w.acknowledge()
			}
		case *h2.PingFrame:
			if !f.IsAck() {
				_ = w.framer.WritePing(true, f.Data)
			}
		case *h2.MetaHeadersFrame:
			answer(f.StreamID, "answered "+f.PseudoValue("status"))
		case *h2.RSTStreamFrame:
			answer(f.StreamID, "reset with "+f.ErrCode.String())
		}
	}
	for i := range streams {
		answer(uint32(2*i+1), "no answer")
	}
}

// madeUpRevisions watches at revisions of the past and of the future, at 0, and at what is none.
func madeUpRevisions(rate int) crowdAttack {
	return func(ctx context.Context, s *side, ready func(), counts *tally) {
		now := s.revision()
		revisions := []string{
			"1", strconv.FormatUint(now+5, 10), strconv.FormatUint(now+1_000_000, 10), "0", "-1", "9223372036854775807", "18446744073709551616",
		}
		storm(rate, greedyToken, func(_ *side, i int) string {
			return watched("/api/v1/pods", "resourceVersion="+revisions[i%len(revisions)]+fewPods)
		})(ctx, s, ready, counts)
	}
}

const (
	// wideNamespace is one of a few pods whose events are wide: each of them has a new text of
	// wideBytes, and one of them changes every wideEvery.
	wideNamespace = "wide"
	widePods      = 4
	wideBytes     = 64 << 10
	wideEvery     = 50 * time.Millisecond
)

// besideWide lets wide pods change while an attack lasts.
func besideWide(attack crowdAttack) crowdAttack {
	return func(ctx context.Context, s *side, ready func(), counts *tally) {
		admin := s.admin()
		_, _ = admin.Send(ctx, http.MethodPost, "/api/v1/namespaces", kinds.Namespace(wideNamespace))
		for i := range widePods {
			pod := crowdPods.Pod(i, wideNamespace)
			_, _ = admin.Send(ctx, http.MethodPost, "/api/v1/namespaces/"+wideNamespace+"/pods", pod)
		}
		ctx, cancel := context.WithCancel(ctx)
		var changing sync.WaitGroup
		changing.Go(func() {
			for i := 0; poll.Pause(ctx, wideEvery); i++ {
				text := strconv.Itoa(i) + strings.Repeat("x", wideBytes)
				_, _ = admin.Send(ctx, http.MethodPatch, podPath(wideNamespace, i%widePods), kinds.Touch(text))
			}
		})
		defer changing.Wait()
		defer cancel()
		attack(ctx, s, ready, counts)
	}
}

func podPath(namespace string, i int) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + crowdPods.Pod(i, namespace).Name
}

// admin writes directly to kube-apiserver.
func (s *side) admin() *ask.Client {
	s.Helper()
	return ask.MustNew(s, s.plane.RESTConfig(controlplane.Admin), crowdPatience)
}
