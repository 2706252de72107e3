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
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// pressed is what came of an attack.
type pressed struct {
	sent   int            // requests, connections or streams
	counts map[string]int // what came of them
	says   string         // more, for the table
}

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

func (c *tally) pressed() pressed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pressed{sent: c.sent, counts: c.counts}
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
	return func(ctx context.Context, s *side, ready func()) pressed {
		clients := make([]*http.Client, stormConnections)
		for i := range clients {
			clients[i] = s.client(crowdAddress, nil)
			defer clients[i].CloseIdleConnections()
		}
		var (
			counts tally
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
		return counts.pressed()
	}
}

// madeUpPrefix begins the tokens that nobody has given out.
const madeUpPrefix = "made-up-"

// madeUp is one of them.
func madeUp(*side, int) string { return madeUpPrefix + rand.Text() }

// withoutRights is the token of an account that has none.
func withoutRights(s *side, _ int) string { return s.rig.bare }

// anyList is a list of few pods.
func anyList(*side, int) string {
	return "/api/v1/namespaces/shop/pods?resourceVersion=0&labelSelector=bench.listproxy.io%2Fhundredth%3D1"
}

// anotherList is one that nobody has asked for, so that no review can be shared.
func anotherList(_ *side, i int) string {
	return fmt.Sprintf("/api/v1/namespaces/nowhere-%d/pods?resourceVersion=0&labelSelector=n%%3D%d", i%97, i)
}

// testPrice is about what made-up tokens cost kube-apiserver, if they wait for their answers: two
// authentications each, that of the review and that of the list itself.
func testPrice(t *testing.T, r *crowdRig, tables *crowdTables) {
	t.Helper()
	lists := crowdScale(1000, 100)
	for _, s := range []*side{r.through(t, crowding{}), r.directly(t)} {
		counted0, upstream0 := s.counted(), r.directly(t).used()
		var (
			all    sync.WaitGroup
			counts tally
			turns  = make(chan int)
		)
		for range stormConnections {
			all.Go(func() {
				client := s.client(crowdAddress, nil)
				defer client.CloseIdleConnections()
				for i := range turns {
					a := s.get(t.Context(), client, madeUp(s, i), anyList(s, i))
					if a.err == nil {
						counts.end(strconv.Itoa(a.code))
						continue
					}
					// kube-apiserver has closed the connection after the one before.
					counts.end("no answer")
				}
			})
		}
		for i := range lists {
			turns <- i
		}
		close(turns)
		all.Wait()
		cpu := r.directly(t).used() - upstream0
		n := s.counted()[authentications] - counted0[authentications]
		tables.price(s.name(), lists, counted(counts.counts), n, cpu)
		// listproxy's own, and this test's, and those of who has been there before.
		if few := float64(lists) / 5; s.proxy != nil && n > float64(2*lists)+few {
			t.Errorf("%d lists with made-up tokens cost %.0f authentications", lists, n)
		}
	}
}
