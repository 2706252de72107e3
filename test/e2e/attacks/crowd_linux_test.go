package attacks

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	// crowdLength is how long the other caller works beside an attack.
	crowdLength = 2 * time.Second
	// crowdPatience ends a wait; no test passes because of it, and nothing depends on how fast the
	// machine is.
	crowdPatience = 5 * time.Minute
	// crowdPlaces and crowdBytes are listproxy's bounds, of which one caller may have half.
	crowdPlaces = 200
	crowdBytes  = 2 << 20
	// Of what the other caller asks for all comes from memory, whatever others do, but for one answer in
	// oneForwardedOf, or one at all: a review can fail by itself on a machine that stands still.
	oneForwardedOf = 50
)

// A crowdAttack attacks until its context ends. It calls ready when all of it is in place.
type crowdAttack func(ctx context.Context, s *side, ready func(), counts *tally)

// A crowding is an attack that could take from others what they need.
type crowding struct {
	name string
	// slow says whose reviews kube-apiserver does not answer: so whether they take others' places
	// does not depend on how fast the machine is.
	slow   func(r *crowdRig, token string) bool
	attack crowdAttack
	// holds requires what else must be true.
	holds func(t *testing.T, counts *tally, asked upstreamCounts)
}

func crowdings() []crowding {
	const aSecond, streams = 300, 40
	return []crowding{
		{
			name: "made-up tokens", attack: storm(aSecond, madeUp, anyList), holds: reviewedOnce,
			slow: func(_ *crowdRig, token string) bool { return strings.HasPrefix(token, madeUpPrefix) },
		},
		{
			name: "no rights", attack: storm(aSecond, withoutRights, anotherList),
			slow: func(r *crowdRig, token string) bool { return token == r.bare },
		},
		{name: "two tokens' lists that nobody reads", attack: stalled(streams, someList)},
		{name: "streams that stay", attack: staying(crowdPlaces * 5 / 4), holds: halfOfThePlaces},
		{
			name:   "streams given up",
			attack: storm(aSecond, greedyToken, func(*side, int) string { return watched("/api/v1/namespaces/shop/pods", "resourceVersion=0"+fewPods) }),
		},
		{name: "nobody reads wide events", attack: besideWide(stalled(streams, func(s *side) string {
			return watched("/api/v1/namespaces/"+wideNamespace+"/pods", "resourceVersion="+strconv.FormatUint(s.revision(), 10))
		}))},
		{name: "nobody reads streaming lists", attack: stalled(streams, func(*side) string {
			return watched("/api/v1/pods", "resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
		})},
		{name: "made-up revisions", attack: madeUpRevisions(aSecond)},
	}
}

// upstreamCounts is what kube-apiserver has counted.
type upstreamCounts struct{ authentications, reviews float64 }

// reviewedOnce requires that a made-up token costs kube-apiserver one review at most beside the list
// itself, and so two authentications. The other caller's reviews come on top.
func reviewedOnce(t *testing.T, counts *tally, asked upstreamCounts) {
	t.Helper()
	const others = 500
	if asked.reviews > float64(counts.sent+others) || asked.authentications > float64(2*counts.sent+2*others) {
		t.Errorf("%d lists with made-up tokens cost %.0f reviews, %.0f authentications", counts.sent, asked.reviews, asked.authentications)
	}
}

// halfOfThePlaces requires that an attack has no more than half of them.
func halfOfThePlaces(t *testing.T, counts *tally, _ upstreamCounts) {
	t.Helper()
	held := 0
	for said, n := range counts.counts {
		if strings.HasPrefix(said, strconv.Itoa(http.StatusOK)) {
			held += n
		}
	}
	if held == 0 || held > crowdPlaces/2 {
		t.Errorf("the attack has %d of %d places", held, crowdPlaces)
	}
}

// TestCrowding lets one caller try to crowd out another: all that the other caller asks for meanwhile
// must come, and from memory what listproxy keeps. Of the attack nothing stays.
func TestCrowding(t *testing.T) {
	harness.Long(t)
	s := newCrowdRig(t)
	for _, c := range crowdings() {
		t.Run(c.name, func(t *testing.T) {
			s := &side{T: t, crowdRig: s}
			other := newOtherCaller(s)
			// What happens once is over: the connection is open, the token is accepted.
			warmUp, cancel := context.WithTimeout(t.Context(), time.Second)
			other.work(warmUp)
			cancel()

			held, asked := s.held(), s.asked()
			attacking, stop := context.WithCancel(t.Context())
			defer stop()
			if c.slow != nil {
				s.slow.Store(&heldUp{is: c.slow, until: attacking})
			}
			var counts tally
			ready, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended) // also where the test has failed
				c.attack(attacking, s, func() { close(ready) }, &counts)
			}()
			select {
			case <-ready:
			case <-ended:
				t.Fatal("the attack has ended before it was in place")
			case <-time.After(crowdPatience):
				t.Fatal("the attack does not begin")
			}
			working, cancel := context.WithTimeout(t.Context(), crowdLength)
			done := other.work(working)
			cancel()
			stop()
			<-ended
			s.slow.Store(nil)
			t.Logf("lists: %s; watches: %s; events: %s; the attack: %s",
				reasons(done.lists), reasons(done.watches), reasons(done.events), counted(counts.counts))
			done.served(t)
			if c.holds != nil {
				now := s.asked()
				c.holds(t, &counts, upstreamCounts{now.authentications - asked.authentications, now.reviews - asked.reviews})
			}
			const spare = 40 // connections to kube-apiserver that idle for a while, and the like
			poll.Until(t, crowdPatience, "what the attack took is given back", func() bool {
				now := s.held()
				return now.goroutines <= held.goroutines+spare && now.descriptors <= held.descriptors+spare
			})
		})
	}
}

// served requires that the other caller got all it asked for, and from memory what listproxy keeps.
func (w work) served(t *testing.T) {
	t.Helper()
	for what, answers := range map[string][]crowdAnswer{
		// New connections are too few for a part of them to be told.
		"lists": slices.Concat(w.lists, w.connections), "watches": w.watches, "events": w.events,
	} {
		if n := failed(answers); n > 0 || len(answers) == 0 || len(w.connections) == 0 {
			t.Errorf("the other caller: %d of %d %s failed: %s", n, len(answers), what, reasons(answers))
		}
		if n := forwarded(answers); n > max(1, len(answers)/oneForwardedOf) {
			t.Errorf("the other caller: %d of %d %s were forwarded: %s", n, len(answers), what, reasons(answers))
		}
	}
}

// heldBy is what a process holds.
type heldBy struct{ goroutines, descriptors float64 }

// held is what listproxy holds.
func (s *side) held() heldBy {
	s.Helper()
	at := s.proxy.AdminURL() + "/metrics"
	return heldBy{s.sum(http.DefaultClient, at, "go_goroutines", nil), s.sum(http.DefaultClient, at, "process_open_fds", nil)}
}

// asked is what kube-apiserver was asked until now.
func (s *side) asked() upstreamCounts {
	s.Helper()
	client, at := s.upstreamClient(controlplane.Admin), s.plane.URL()+"/metrics"
	defer client.CloseIdleConnections()
	return upstreamCounts{
		authentications: s.sum(client, at, "authentication_attempts", nil),
		reviews:         s.sum(client, at, "apiserver_request_total", map[string]string{"resource": "selfsubjectaccessreviews"}),
	}
}

// sum adds up the series of a metric that have these labels.
func (s *side) sum(client *http.Client, url, name string, labels map[string]string) float64 {
	s.Helper()
	sum, _, err := soak.Sum(s.Context(), client, url, name, labels)
	s.must(err)
	return sum
}
